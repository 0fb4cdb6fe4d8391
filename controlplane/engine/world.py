"""The world as seen by a cycle: targets as rows with their room, the holders of unique resources, settings and rules.

A world is immutable, so a decision in a thread, or a question about a changed world, has no effect on other readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from immutables import Map

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.restore_state import is_restoring
from controlplane.cache.snapshot import Snapshot
from controlplane.cache.target_ledger import NeighbourKind
from controlplane.engine.ends import RowEnds
from controlplane.engine.made_room import MadeRoom
from controlplane.engine.rules.book import Book
from controlplane.engine.rules.facts import TargetFacts
from controlplane.engine.target_columns import TargetColumns
from controlplane.model import times, windows
from controlplane.model.fulfilment import Claim, Fulfilment
from controlplane.model.quantity import Number, whole
from controlplane.model.scalepolicy import REMOVE
from controlplane.model.settings import Settings
from controlplane.model.target import Live, Target, Window

# Upper bound of `failure_memory`, so that the subtraction stays within the calendar.
_LONGEST_MEMORY_SECONDS = 1e9

_NO_LIVE: Map[str, Fulfilment] = Map()


@dataclass(frozen=True)
class TargetRow:
    """A target. `ready` means the target takes new work; `phase` tells why a target takes none; `slots` is how many
    more fulfilments the target takes.

    `slots` is negative when `max_fulfilments` was lowered below the number of placed fulfilments.
    """

    facts: TargetFacts
    ready: bool
    phase: str
    capacity: Mapping[str, Number]
    free: Mapping[str, Number]
    slots: int | None
    windows: tuple[Window, ...] = ()
    kinds: Mapping[NeighbourKind, int] = field(default_factory=dict)
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
    """`held` maps unique resources to claims. `owners` holds the placed tasks and amounts of each owner; `limited` how
    many tasks count against each limiting rule; `priorities` the priorities of orders under way, only filled when a
    waiting order preempts. `spread` names, for each waiting order with tasks on different targets, the targets with
    such tasks, and the fulfilments there. `made_rooms` is room which earlier cycles made by stopping work."""

    revision: int
    now: datetime
    settings: Settings
    floor: TargetColumns
    targets: tuple[TargetRow, ...]
    held: Mapping[str, Claim | None]
    book: Book
    owners: Mapping[str, tuple[int, Mapping[str, Number]]] = field(default_factory=dict)
    limited: Mapping[str, int] = field(default_factory=dict)
    spread: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    made_rooms: tuple[MadeRoom, ...] = ()


def row_of(name: str, snapshot: Snapshot, ledgers: Ledgers) -> TargetRow | None:
    target = snapshot.target(name)
    if target is None:
        return None
    status, live = snapshot.target_status(name), snapshot.live(name)
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
    """Why scaling lets no new work go to the target; empty when new work may go there."""
    record = snapshot.made(name)
    return f"{LEAVING} by scale policy {record.policy}" if record is not None and record.want == REMOVE else ""


def _shown(phase: str, target: Target, live: Live | None) -> str:
    """The phase, adjusted for wishes (drain, cordon) and a lost session which the leader has not handled yet."""
    if phase != "Ready":
        return phase
    if live is None:
        return "Suspect"
    return "Draining" if target.drain else "Cordoned" if target.cordoned else phase


def facts_of(target: Target, live: Live | None, capacity: Mapping[str, Number]) -> TargetFacts:
    """The facts of a target as seen by rules and constraints; name, region and driver are labels too, unless the target
    has labels of these names."""
    driver = live.driver if live is not None else target.driver
    implicit = {"name": target.name, "region": target.region, "driver": driver}
    labels = {name: value for name, value in implicit.items() if value} | target.labels
    return TargetFacts(name=target.name, region=target.region, driver=driver, labels=labels, capacity=capacity)


def capacity_of(target: Target, live: Live | None) -> dict[str, Number]:
    """Of each quantity the smaller of the configured amount and the amount reported by the joblet."""
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
    """The targets with tasks of the order which keep apart from each other, and the fulfilments of these tasks."""
    apart = {resolved.job.name for resolved in ledger.resolved.jobs if resolved.job.spread == "order"}
    fulfilments: dict[str, set[str]] = {}
    for live in ledger.live.values():
        fulfilment = live.fulfilment
        if any(task.job in apart for task in fulfilment.tasks):
            fulfilments.setdefault(fulfilment.target, set()).add(fulfilment.id)
    return {target: frozenset(ids) for target, ids in fulfilments.items()}


def limits_of(ledger: OrderLedger, book: Book, floor: TargetColumns, now: datetime) -> list[str]:
    """The limiting rules which count placed tasks of the order, each rule once for every such task."""
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
    """The effective priority of the order: the highest over the jobs of the order."""
    order = ledger.order
    facts = (book.facts(order, resolved.job) for resolved in ledger.resolved.jobs)
    return max((book.priority_of(each, order.priority, now) for each in facts), default=order.priority)
