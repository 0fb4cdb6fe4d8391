"""The world as a cycle sees it: targets as rows with their room, who holds what, the settings and the rules.

Immutable, so that who decides in a thread of its own, or asks about a changed world, changes nothing for anybody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TypeVar

from immutables import Map

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.restoring import is_restoring
from controlplane.cache.settings import settings_of
from controlplane.cache.snapshot import Snapshot
from controlplane.cache.target_ledger import Kind
from controlplane.engine.ends import RowEnds
from controlplane.engine.floor import Floor
from controlplane.engine.rules.book import Book
from controlplane.engine.rules.facts import TargetFacts
from controlplane.model import times, windows
from controlplane.model.fulfilment import Claim, Fulfilment
from controlplane.model.isolation import Bystander, Ward
from controlplane.model.quantity import Number, whole
from controlplane.model.rule import Rule
from controlplane.model.scalepolicy import REMOVE, Made
from controlplane.model.settings import Settings
from controlplane.model.target import Live, Target, TargetStatus, Window
from controlplane.store import keys

R = TypeVar("R")
# Whatever the settings say: nothing is older than the calendar.
_LONGEST_MEMORY_SECONDS = 1e9

_NO_LIVE: Map[str, Fulfilment] = Map()


@dataclass(frozen=True)
class TargetRow:
    """One target. `ready` means that it takes new work; `phase` says why it does not, if it does not; `slots` is how
    many more fulfilments it takes.

    Below 0 it has more than it may have, since somebody changed that.
    """

    facts: TargetFacts
    ready: bool
    phase: str
    capacity: Mapping[str, Number]
    free: Mapping[str, Number]
    slots: int | None
    windows: tuple[Window, ...] = ()
    kinds: Mapping[Kind, int] = field(default_factory=dict)
    live: Map[str, Fulfilment] = _NO_LIVE
    failures: Map[str, str] = field(default_factory=Map)
    default_time_limit: Number | None = None

    @property
    def name(self) -> str:
        return self.facts.name

    @cached_property
    def ends(self) -> RowEnds:
        return RowEnds.of(self.live.values())


@dataclass(frozen=True, slots=True)
class World:
    """`owners` is what each has placed; `limited` how many tasks count against each rule that limits; `priorities` of
    orders under way, when somebody asks for preemption. `spread` names, for each waiting order that keeps its tasks on
    different targets, the targets that have such tasks, and the fulfilments there."""

    revision: int
    now: datetime
    settings: Settings
    floor: Floor
    targets: tuple[TargetRow, ...]
    held: Mapping[str, Claim | None]
    book: Book
    owners: Mapping[str, tuple[int, Mapping[str, Number]]] = field(default_factory=dict)
    limited: Mapping[str, int] = field(default_factory=dict)
    spread: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)


class Lookout:
    """Looks at the same ledgers again and again; what did not change is not worked out again."""

    def __init__(self, ledgers: Ledgers, ward: Ward | None = None) -> None:
        """Targets that the ward holds are not there; what raises for a target or an order is reported to it."""
        self._ledgers = ledgers
        self._ward: Ward = ward or Bystander()
        self._rows: dict[str, tuple[tuple[object, ...], TargetRow | None]] = {}
        self._floor = Floor(())
        self._book: tuple[tuple[tuple[str, int], ...], Book] = ((), Book.of(()))

    def report_to(self, ward: Ward) -> None:
        """From now on that ward counts."""
        self._ward = ward

    def look(self, now: datetime, *, apart: Iterable[str] = (), preempting: bool = False) -> World:
        """`apart` are the waiting orders that keep their tasks on different targets."""
        snapshot = self._ledgers.cache.snapshot
        names = sorted(snapshot.names("config/targets"))
        rows = tuple(row for row in (self._row(name, snapshot) for name in names) if row is not None)
        facts = tuple(row.facts for row in rows)
        if facts != self._floor.targets:
            self._floor = Floor(facts)
            self._rows = {name: self._rows[name] for name in names if name in self._rows}
        book = self.book(snapshot)
        return World(
            revision=snapshot.revision,
            now=now,
            settings=settings_of(snapshot),
            floor=self._floor,
            targets=rows,
            held={entry.parts[0]: entry.sound(Claim) for entry in snapshot.all("claims")},
            book=book,
            owners=self._ledgers.owners.frozen(),
            limited=self._limited(book, now) if book.limits else {},
            spread=self._spread(apart),
            priorities=self._priorities(book, now) if preempting else {},
        )

    def _limited(self, book: Book, now: datetime) -> dict[str, int]:
        """How many placed tasks count against each rule that limits."""
        counted: Counter[str] = Counter()
        for names in self._of_each(self._ledgers.orders, lambda ledger: limits_of(ledger, book, self._floor, now)):
            counted.update(names)
        return dict(counted)

    def _spread(self, orders: Iterable[str]) -> dict[str, Mapping[str, frozenset[str]]]:
        """Where tasks of these orders are that keep away from each other."""
        return dict(self._of_each(orders, lambda ledger: (ledger.order.id, spread_of(ledger))))

    def _priorities(self, book: Book, now: datetime) -> dict[str, int]:
        """The effective priority of every order under way."""
        return dict(
            self._of_each(self._ledgers.orders, lambda ledger: (ledger.order.id, priority_of(ledger, book, now)))
        )

    def _of_each(self, orders: Iterable[str], ask: Callable[[OrderLedger], R]) -> Iterator[R]:
        """The answer of each order that is under way; one that raises is reported, and the others answer."""
        for identity in orders:
            ledger = self._ledgers.orders.get(identity)
            if ledger is None or (not self._ward.empty() and self._ward.holds("Order", identity)):
                continue
            try:
                yield ask(ledger)
            except Exception as error:  # noqa: BLE001 - supervision
                self._ward.failed("Order", identity, error)

    def book(self, snapshot: Snapshot) -> Book:
        """The rules as they are now, compiled once."""
        entries = sorted(snapshot.all("config/rules"), key=lambda entry: entry.parts)
        key = tuple((entry.parts[0], entry.revision) for entry in entries)
        if key != self._book[0]:
            rules = (entry.sound(Rule) for entry in entries)
            self._book = (key, Book.of(rule for rule in rules if rule is not None))
        return self._book[1]

    def _row(self, name: str, snapshot: Snapshot) -> TargetRow | None:
        if not self._ward.empty() and self._ward.holds("Target", name):
            return None
        there = self._ledgers.targets.get(name)
        config = snapshot.get("config/targets", name)
        status = snapshot.get("status/targets", name)
        live = snapshot.get("inventory", name, keys.LIVE)
        made = snapshot.get("status/made", name)
        # An entry is made anew with every change of its key; a ledger counts its own.
        cluster = snapshot.get("status", "cluster")
        key = (config, status, live, made, there, there.version if there is not None else 0, cluster)
        known = self._rows.get(name)
        if known is None or known[0] != key:
            try:
                known = (key, row_of(name, snapshot, self._ledgers))
            except Exception as error:  # noqa: BLE001 - supervision: the other targets are there
                self._rows.pop(name, None)
                self._ward.failed("Target", name, error)
                return None
            self._rows[name] = known
        return known[1]


def row_of(name: str, snapshot: Snapshot, ledgers: Ledgers) -> TargetRow | None:
    entry = snapshot.get("config/targets", name)
    target = entry.sound(Target) if entry is not None else None
    if target is None:
        return None
    status_entry = snapshot.get("status/targets", name)
    status = status_entry.sound(TargetStatus) if status_entry is not None else None
    live_entry = snapshot.get("inventory", name, keys.LIVE)
    live = live_entry.sound(Live) if live_entry is not None else None
    capacity = capacity_of(target, live)
    ledger = ledgers.target(name)
    phase = status.phase if status is not None else "Provisioning"
    restoring, leaving = is_restoring(snapshot), leaving_of(name, snapshot)
    closed = restoring or bool(leaving) or target.cordoned or target.drain or (live is not None and live.leftovers > 0)
    return TargetRow(
        facts=facts_of(target, live, capacity),
        ready=phase == "Ready" and live is not None and not closed,
        phase=_RESTORING if restoring else leaving or _shown(phase, target, live),
        capacity=capacity,
        free={name: whole(round(amount - ledger.used.get(name, 0), 9)) for name, amount in capacity.items()},
        slots=None if target.max_fulfilments is None else target.max_fulfilments - len(ledger.fulfilments),
        windows=target.windows,
        kinds=dict(ledger.kinds),
        live=ledger.fulfilments,
        failures=ledger.failures,
        default_time_limit=target.default_time_limit,
    )


LEAVING = "being removed"
_RESTORING = "Ready, but the control plane waits for joblets after a restore"


def leaving_of(name: str, snapshot: Snapshot) -> str:
    """Why scaling lets nothing new go there; empty when it does."""
    entry = snapshot.get("status/made", name)
    made = entry.sound(Made) if entry is not None else None
    return f"{LEAVING} by scale policy {made.policy}" if made is not None and made.want == REMOVE else ""


def _shown(phase: str, target: Target, live: Live | None) -> str:
    """The phase with what follows from wishes that the leader has not answered yet."""
    if phase != "Ready":
        return phase
    if live is None:
        return "Suspect"
    return "Draining" if target.drain else "Cordoned" if target.cordoned else phase


def facts_of(target: Target, live: Live | None, capacity: Mapping[str, Number]) -> TargetFacts:
    """What rules and constraints see; name, region and driver are labels too, unless the target says otherwise."""
    driver = live.driver if live is not None else target.driver
    implicit = {"name": target.name, "region": target.region, "driver": driver}
    labels = {name: value for name, value in implicit.items() if value} | target.labels
    return TargetFacts(name=target.name, region=target.region, driver=driver, labels=labels, capacity=capacity)


def capacity_of(target: Target, live: Live | None) -> dict[str, Number]:
    """Of each quantity the smaller of what is configured and what the joblet reports."""
    configured = dict(target.capacity or {})
    reported = dict(live.capacity) if live is not None else {}
    for name, amount in reported.items():
        configured[name] = min(amount, configured.get(name, amount))
    return configured


def is_open(row: TargetRow, now: datetime) -> bool:
    return not row.windows or windows.is_open(row.windows, now)


def recent_failures(row: TargetRow, now: datetime, memory: Number) -> int:
    if not row.failures:
        return 0
    since = times.show(now - timedelta(seconds=min(float(memory), _LONGEST_MEMORY_SECONDS)))
    return sum(when >= since for when in row.failures.values())


def spread_of(ledger: OrderLedger) -> Mapping[str, frozenset[str]]:
    """The targets that have tasks of the order that keep away from each other, and the fulfilments of those tasks."""
    apart = {resolved.job.name for resolved in ledger.resolved.jobs if resolved.job.spread == "order"}
    found: dict[str, set[str]] = {}
    for live in ledger.live.values():
        one = live.fulfilment
        if any(task.job in apart for task in one.tasks):
            found.setdefault(one.target, set()).add(one.id)
    return {target: frozenset(ids) for target, ids in found.items()}


def limits_of(ledger: OrderLedger, book: Book, floor: Floor, now: datetime) -> list[str]:
    """The rules that limit and count placed tasks of the order, each once for every such task."""
    if not ledger.live:
        return []
    counted: list[str] = []
    jobs = {resolved.job.name: resolved.job for resolved in ledger.resolved.jobs}
    for live in ledger.live.values():
        row = floor.row(live.fulfilment.target)
        for task in live.fulfilment.tasks if row is not None else ():
            if task.job in jobs:
                ruling = book.rule(book.facts(ledger.order, jobs[task.job]), floor.targets, now)
                counted.extend(limit.name for limit in ruling.limits if limit.mask[row])
    return counted


def priority_of(ledger: OrderLedger, book: Book, now: datetime) -> int:
    """The effective priority of the order; of its jobs the highest counts."""
    order = ledger.order
    facts = (book.facts(order, resolved.job) for resolved in ledger.resolved.jobs)
    return max((book.priority_of(each, order.priority, now) for each in facts), default=order.priority)
