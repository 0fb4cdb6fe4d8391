"""All ledgers of a replica, kept current from the cache's changes: orders under way and what targets carry.

Warm on every replica, so that a new leader needs no hand-over. A finished order has no ledger. Poison in etcd, which
is any value that is not sane in any tree, is set aside by its key, with the rule that it breaks: the rest goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import structlog

from controlplane.cache.contents import Contents, by_own_digest
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.open_templates import OpenTemplates
from controlplane.cache.reflector import Delta, Listener
from controlplane.cache.sending import Sending
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.cache.target_ledger import OwnerLedgers, TargetLedger, failed_at
from controlplane.model.errors import Broken
from controlplane.model.fulfilment import Ended, Fulfilment, Observed
from controlplane.model.isolation import sentence
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import Order, OrderStatus, Resolved
from controlplane.model.target import Live
from controlplane.store import keys, places

log = structlog.get_logger(__name__)

# Within one revision, an order comes before what refers to it and an end before the disappearance it explains.
_RANK = {"config/orders": 0, "status/ended": 1, "desired": 2, "inventory": 3, "status/orders": 4}

_SELDOM_READ = frozenset({"cycles", "events", "terms"})

# Ends are only decoded for orders that are over when they tell of a failure, which few do.
_FAILED = b'"phase":"Failed"'


@dataclass(slots=True)
class Touched:
    """What one batch of changes concerned."""

    orders: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    config: set[str] = field(default_factory=set)
    # Unique resources whose claim, or whose holder's placement, changed.
    claims: set[str] = field(default_factory=set)


class Template(NamedTuple):
    """A recurring order, which is never placed itself."""

    order: Order
    revision: int


class Source(Protocol):
    """What ledgers follow: the cache of a replica, or a picture of the past."""

    @property
    def snapshot(self) -> Snapshot: ...

    @property
    def revision(self) -> int: ...

    def subscribe(self, listener: Listener) -> Callable[[], None]: ...

    async def reached(self, revision: int, timeout: float | None = None) -> None: ...


class Ledgers:
    def __init__(self, cache: Source) -> None:
        self.cache = cache
        self.orders: dict[str, OrderLedger] = {}
        self.templates: dict[str, Template] = {}
        self.targets: dict[str, TargetLedger] = {}
        self.owners = OwnerLedgers()
        # How many orders of each owner have a ledger: those that are not final. Recurring ones are counted apart.
        self.open_orders: Counter[str] = Counter()
        self.open_templates = OpenTemplates()
        # Orders of which at least one task waits to be placed, and all tasks that do.
        self.waiting_orders = 0
        self.waiting_tasks = 0
        # What is set aside, by key without the root: the rule that the value breaks.
        self.poison: dict[str, str] = {}
        self._contents = Contents()
        # What is placed for orders that have no ledger, as (target, fulfilment) by order.
        self.strays: dict[str, set[tuple[str, str]]] = {}
        self.sending = Sending(lambda orders: self._tell(Touched(orders=orders)))
        self._listeners: list[Callable[[Touched], None]] = []
        cache.subscribe(self._hear)

    def subscribe(self, listener: Callable[[Touched], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    @property
    def poisoned(self) -> Set[str]:
        """The keys that are set aside."""
        return self.poison.keys()

    def target(self, name: str) -> TargetLedger:
        return self.targets.get(name) or TargetLedger()

    def _enter(self, name: str) -> TargetLedger:
        there = self.targets.get(name)
        if there is None:
            there = self.targets[name] = TargetLedger()
        return there

    def resolved(self, order: Order) -> Resolved:
        """The order's packet as it was."""
        return self._contents.of(order)

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        touched = Touched()
        if len({delta.tree for delta in deltas}) > 1:
            deltas = sorted(deltas, key=_in_time)
        for delta in deltas:
            try:
                self._take(delta, touched)
                if self.poison:
                    self.poison.pop(self._name(delta), None)
            except Exception as error:  # noqa: BLE001 - supervision: whatever a value does, those of others are taken
                why = str(error) if isinstance(error, Broken) else sentence(error)
                self.poison[self._name(delta)] = why
                log.error("a value in etcd cannot be read, stepping over it", key=self._name(delta), error=why)
        for identity in touched.orders:
            self._count_anew(identity)
        self._tell(touched)

    def _count_anew(self, identity: str) -> None:
        ledger = self.orders.get(identity)
        try:
            if ledger is not None:
                self._count_waiting(ledger, ledger.waiting())
        except Exception as error:  # noqa: BLE001 - supervision: the others are counted
            log.error("what waits of an order cannot be counted", order=identity, error=sentence(error))

    def _tell(self, touched: Touched) -> None:
        """A listener that fails concerns itself only."""
        for listener in tuple(self._listeners):
            try:
                listener(touched)
            except Exception as error:  # noqa: BLE001 - supervision: the others hear of it
                name = getattr(listener, "__qualname__", type(listener).__name__)
                log.error("a listener failed on a change of the ledgers", listener=name, error=sentence(error))

    @staticmethod
    def _name(delta: Delta) -> str:
        return "/".join((delta.tree, *delta.parts))

    def _take(self, delta: Delta, touched: Touched) -> None:
        match delta.tree:
            case "config/orders":
                self._take_order(delta.parts[0], delta.new)
                touched.orders.add(delta.parts[0])
            case "status/ended":
                self._take_ended(delta, touched)
                touched.orders.add(delta.parts[0])
            case "desired":
                self._take_desired(delta, touched)
            case "inventory":
                self._take_inventory(delta, touched)
            case "status/orders":
                self._take_status(delta.parts[0], delta.new)
                touched.orders.add(delta.parts[0])
            case "config/targets" | "status/targets" | "status/made":
                touched.targets.add(delta.parts[0])
                _look(delta)
            case "status":
                touched.config.add(f"status/{delta.parts[0]}")
                _look(delta)
            case "claims":
                touched.config.add(delta.tree)
                touched.claims.add(delta.parts[0])
                _look(delta)
            case _:
                touched.config.add(delta.tree)
                _look(delta)

    def _take_ended(self, delta: Delta, touched: Touched) -> None:
        ledger = self.orders.get(delta.parts[0])
        if delta.new is None:
            before = delta.old.sound(Ended) if delta.old is not None and _FAILED in delta.old.stored.value else None
            if before is not None:
                self._note_failure(before, None, touched)
            return
        failed = _FAILED in delta.new.stored.value
        if ledger is None and not failed:
            return
        ended = delta.new.read(Ended)
        if ledger is not None:
            ledger.end(ended, delta.new.revision)
        if failed:
            self._note_failure(ended, failed_at(ended), touched)

    def _note_failure(self, ended: Ended, when: str | None, touched: Touched) -> None:
        there = self._enter(ended.target)
        there.failed(ended.id, when)
        if there.empty:
            del self.targets[ended.target]
        touched.targets.add(ended.target)

    def _take_order(self, identity: str, entry: Entry | None) -> None:
        if entry is None:
            self.templates.pop(identity, None)
            self.open_templates.set(identity, None)
            self._close(identity)
            return
        order = by_own_digest(entry.read(Order))
        if order.schedule is not None:
            self.templates[identity] = Template(order, entry.revision)
            self._take_status(identity, self.cache.snapshot.get("status/orders", identity))
            return
        known = self.orders.get(identity)
        if known is not None:
            self._count(known.order.owner, -1)
            self._count(order.owner, 1)
            known.change(order, entry.revision)
            known.give_way(known.replaced_by)
            return
        snapshot = self.cache.snapshot
        entry_of_status = snapshot.get("status/orders", identity)
        status = _sound(entry_of_status) if entry_of_status is not None else None
        if status is not None and status.phase in FINAL_ORDER:
            return
        ledger = OrderLedger.open(order, entry.revision, self.resolved(order))
        self.orders[identity] = ledger
        self._count(order.owner, 1)
        ledger.changed = entry.revision != entry.stored.create_revision
        if entry_of_status is not None:
            ledger.status_revision = entry_of_status.revision
        if identity in self.strays or snapshot.has("status/ended", identity):
            self._catch_up(ledger)
        if status is not None:
            ledger.phase, ledger.answered = status.phase, status.answered
            ledger.expire(status.expired)
            ledger.give_way(status.replaced_by)

    def _catch_up(self, ledger: OrderLedger) -> None:
        """What is known already of an order that could not be read before: no attempt of it is ever placed twice."""
        snapshot = self.cache.snapshot
        for entry in snapshot.all("status/ended", ledger.order.id):
            with suppress(Broken):
                ledger.end(entry.read(Ended), entry.revision)
        for target, identity in self.strays.pop(ledger.order.id, ()):
            placed = snapshot.get("desired", target, identity)
            fulfilment = self.target(target).fulfilments.get(identity)
            if fulfilment is not None:
                self._place(ledger, fulfilment, placed.revision if placed is not None else 0)

    def _take_status(self, identity: str, entry: Entry | None) -> None:
        template = self.templates.get(identity)
        if template is not None:
            status = _sound(entry) if entry is not None else None
            over = status is not None and status.phase in FINAL_ORDER
            self.open_templates.set(identity, None if over else template.order.owner)
        ledger = self.orders.get(identity)
        if ledger is None:
            return
        if entry is None:
            ledger.phase, ledger.status_revision = "Pending", 0
            return
        # The revision is enough to write something better over poison.
        ledger.status_revision = entry.revision
        status = entry.read(OrderStatus)
        ledger.phase, ledger.answered = status.phase, status.answered
        if status.expired:
            ledger.expire(status.expired)
        ledger.give_way(status.replaced_by)
        if ledger.phase in FINAL_ORDER:
            self._close(identity)

    def _close(self, identity: str) -> None:
        """The order is final or gone: what is still placed for it is a stray."""
        ledger = self.orders.pop(identity, None)
        if ledger is None:
            return
        self._count(ledger.order.owner, -1)
        self._count_waiting(ledger, 0)
        for live in ledger.live.values():
            self.strays.setdefault(identity, set()).add((live.fulfilment.target, live.fulfilment.id))

    def _count_waiting(self, ledger: OrderLedger, waiting: int) -> None:
        self.waiting_orders += bool(waiting) - bool(ledger.counted)
        self.waiting_tasks += waiting - ledger.counted
        ledger.counted = waiting

    def _count(self, owner: str, by: int) -> None:
        self.open_orders[owner] += by
        if not self.open_orders[owner]:
            del self.open_orders[owner]

    def _take_desired(self, delta: Delta, touched: Touched) -> None:
        target, identity = delta.parts
        touched.targets.add(target)
        if delta.new is None:
            self._drop(target, identity, touched)
            return
        fulfilment = delta.new.object(Fulfilment)
        touched.orders.add(fulfilment.order)
        there = self._enter(target)
        before = there.fulfilments.get(identity)
        if before is not None:
            self.owners.remove(before)
            there.remove(identity)
        there.add(fulfilment)
        self.owners.add(fulfilment)
        ledger = self.orders.get(fulfilment.order)
        if ledger is not None:
            self._place(ledger, fulfilment, delta.new.revision)
        else:
            self.strays.setdefault(fulfilment.order, set()).add((target, identity))

    def _place(self, ledger: OrderLedger, fulfilment: Fulfilment, revision: int) -> None:
        known = fulfilment.id in ledger.live
        ledger.place(fulfilment, revision)
        seen = self.cache.snapshot.get("inventory", fulfilment.target, fulfilment.id)
        if not known and seen is not None:
            ledger.observe(fulfilment.id, seen.sound(Observed), seen.revision)

    def _drop(self, target: str, identity: str, touched: Touched) -> None:
        there = self.targets.get(target)
        fulfilment = there.remove(identity) if there is not None else None
        if there is None or fulfilment is None:
            return
        touched.orders.add(fulfilment.order)
        touched.claims.update(fulfilment.holds)
        self.owners.remove(fulfilment)
        if there.empty:
            del self.targets[target]
        strays = self.strays.get(fulfilment.order)
        if strays is not None:
            strays.discard((target, identity))
            if not strays:
                del self.strays[fulfilment.order]
        ledger = self.orders.get(fulfilment.order)
        if ledger is not None:
            ledger.unplace(identity)

    def _take_inventory(self, delta: Delta, touched: Touched) -> None:
        target, identity = delta.parts
        if identity == keys.LIVE:
            if not _only_stats(delta):
                touched.targets.add(target)
            _look(delta)
            return
        there = self.targets.get(target)
        placed = there.fulfilments.get(identity) if there is not None else None
        if placed is None:
            return
        touched.orders.add(placed.order)
        ledger = self.orders.get(placed.order)
        if ledger is None:
            return
        if delta.new is None:
            ledger.observe(identity, None, 0)
            return
        ledger.observe(identity, delta.new.sound(Observed), delta.new.revision)
        _look(delta)


def _look(delta: Delta) -> None:
    """Broken when what is there now is not sane. Of what is many and seldom asked for nothing is kept decoded."""
    rule = places.rule_of(delta.tree, delta.parts) if delta.new is not None else None
    if rule is None or delta.new is None:
        return
    if delta.tree in _SELDOM_READ:
        delta.new.read(rule.kind)
    else:
        delta.new.object(rule.kind)


def _only_stats(delta: Delta) -> bool:
    """Whether a session only told how it fares, which nobody decides on."""
    old = delta.old.sound(Live) if delta.old is not None else None
    new = delta.new.sound(Live) if delta.new is not None else None
    return old is not None and new is not None and old.same_but_stats(new)


def _in_time(delta: Delta) -> tuple[int, int]:
    return delta.revision, _RANK.get(delta.tree, 9)


def _sound(entry: Entry) -> OrderStatus | None:
    """The status on record; None when it cannot be read. Not kept decoded: those of orders that are over are many."""
    try:
        return entry.read(OrderStatus)
    except Broken:
        return None
