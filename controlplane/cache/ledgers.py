"""All ledgers of a replica, kept current from the cache's changes: open orders, and the load of targets.

Warm on every replica, so that a new leader needs no hand-over. A finished order has no ledger. Poison in etcd, which is
any value that is not sane in any tree, is set aside by key with the broken rule, and all other keys go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import structlog

from controlplane.cache import peek
from controlplane.cache.audience import ListenerStage
from controlplane.cache.contents import Contents, by_own_digest
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.open_templates import OpenTemplates
from controlplane.cache.reflector import Delta, Listener
from controlplane.cache.sending import Sending
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.cache.target_ledger import OwnerLedgers, TargetLedger, failed_at
from controlplane.model.errors import Broken
from controlplane.model.fulfilment import Ended, Fulfilment
from controlplane.model.isolation import sentence
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import Order, OrderStatus, Resolved
from controlplane.model.target import Live
from controlplane.store import keys

log = structlog.get_logger(__name__)

# Within a revision, an order comes before keys that refer to the order, and an end before the placement goes.
_RANK: Mapping[str, int] = {keys.ORDERS: 0, keys.ENDED: 1, keys.DESIRED: 2, keys.INVENTORY: 3, keys.ORDER_STATUS: 4}

_SELDOM_READ = frozenset({keys.CYCLES, keys.EVENTS, keys.TERMS})


@dataclass(slots=True)
class Touched:
    """The objects that a batch of changes concerns."""

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
    """The input of ledgers: the cache of a replica, or a frozen cache of the past."""

    @property
    def snapshot(self) -> Snapshot: ...

    @property
    def revision(self) -> int: ...

    def subscribe(self, listener: Listener, *, stage: ListenerStage = ListenerStage.REACT) -> Callable[[], None]: ...

    async def reached(self, revision: int, timeout: float | None = None) -> None: ...


class Ledgers:
    def __init__(self, cache: Source) -> None:
        self.cache = cache
        self.orders: dict[str, OrderLedger] = {}
        self.templates: dict[str, Template] = {}
        self.targets: dict[str, TargetLedger] = {}
        self.owners = OwnerLedgers()
        # The number of open orders of each owner. Recurring orders are counted apart.
        self.open_orders: Counter[str] = Counter()
        self.open_templates = OpenTemplates()
        # Orders with at least one task that waits to be placed, and all such tasks; the tasks by owner too.
        self.waiting_orders = 0
        self.waiting_tasks = 0
        self.waiting_tasks_of: Counter[str] = Counter()
        # Values that are set aside: the broken rule, by key without the root.
        self.poison: dict[str, str] = {}
        self._contents = Contents()
        # Placements of orders without a ledger, as (target, fulfilment) by order.
        self.strays: dict[str, set[tuple[str, str]]] = {}
        self.sending = Sending(lambda orders: self._tell(Touched(orders=orders)))
        self._listeners: list[Callable[[Touched], None]] = []
        cache.subscribe(self._hear, stage=ListenerStage.DERIVE)

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
        """The order's packet as it was when the order was submitted."""
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
            log.error("the waiting tasks of an order cannot be counted", order=identity, error=sentence(error))

    def _tell(self, touched: Touched) -> None:
        """A failing listener disturbs no other listener."""
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
            case keys.ORDERS:
                self._take_order(delta.parts[0], delta.new)
                touched.orders.add(delta.parts[0])
            case keys.ENDED:
                self._take_ended(delta, touched)
                touched.orders.add(delta.parts[0])
            case keys.DESIRED:
                self._take_desired(delta, touched)
            case keys.INVENTORY:
                self._take_inventory(delta, touched)
            case keys.ORDER_STATUS:
                self._take_status(delta.parts[0], delta.new)
                touched.orders.add(delta.parts[0])
            case keys.TARGETS | keys.TARGET_STATUS | keys.MADE:
                touched.targets.add(delta.parts[0])
                _check(delta)
            case keys.STATUS:
                touched.config.add(f"{keys.STATUS}/{delta.parts[0]}")
                _check(delta)
            case keys.CLAIMS:
                touched.config.add(delta.tree)
                touched.claims.add(delta.parts[0])
                _check(delta)
            case _:
                touched.config.add(delta.tree)
                _check(delta)

    def _take_ended(self, delta: Delta, touched: Touched) -> None:
        ledger = self.orders.get(delta.parts[0])
        if delta.new is None:
            before = delta.old.readable() if delta.old is not None and peek.has_failed(delta.old) else None
            if before is not None:
                self._note_failure(before, None, touched)
            return
        # Of an order that is over, only ends with a failure matter, which are few.
        failed = peek.has_failed(delta.new)
        if ledger is None and not failed:
            return
        ended = delta.new.read()
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

    def _take_order(self, identity: str, entry: Entry[Order] | None) -> None:
        if entry is None:
            self.templates.pop(identity, None)
            self.open_templates.set(identity, None)
            self._close(identity)
            return
        order = by_own_digest(entry.read())
        if order.schedule is not None:
            self.templates[identity] = Template(order, entry.revision)
            self._take_status(identity, self.cache.snapshot.get(keys.ORDER_STATUS, identity))
            return
        open_ledger = self.orders.get(identity)
        if open_ledger is not None:
            _count(self.open_orders, open_ledger.order.owner, -1)
            _count(self.open_orders, order.owner, 1)
            self._count_waiting(open_ledger, 0)
            open_ledger.change(order, entry.revision)
            open_ledger.give_way(open_ledger.replaced_by)
            return
        snapshot = self.cache.snapshot
        entry_of_status = snapshot.get(keys.ORDER_STATUS, identity)
        status = _read_once(entry_of_status) if entry_of_status is not None else None
        if status is not None and status.phase in FINAL_ORDER:
            return
        ledger = OrderLedger.open(order, entry.revision, self.resolved(order))
        self.orders[identity] = ledger
        _count(self.open_orders, order.owner, 1)
        ledger.changed = entry.revision != entry.stored.create_revision
        if entry_of_status is not None:
            ledger.status_revision = entry_of_status.revision
        if identity in self.strays or snapshot.has(keys.ENDED, identity):
            self._catch_up(ledger)
        if status is not None:
            ledger.phase, ledger.answered = status.phase, status.answered
            ledger.expire(status.expired)
            ledger.give_way(status.replaced_by)

    def _catch_up(self, ledger: OrderLedger) -> None:
        """Ends and placements of an order that was unreadable before: no attempt is ever placed twice."""
        snapshot = self.cache.snapshot
        for entry in snapshot.all(keys.ENDED, ledger.order.id):
            with suppress(Broken):
                ledger.end(entry.read(), entry.revision)
        for target, identity in self.strays.pop(ledger.order.id, ()):
            placed = snapshot.get(keys.DESIRED, target, identity)
            fulfilment = self.target(target).fulfilments.get(identity)
            if fulfilment is not None:
                self._place(ledger, fulfilment, placed.revision if placed is not None else 0)

    def _take_status(self, identity: str, entry: Entry[OrderStatus] | None) -> None:
        template = self.templates.get(identity)
        if template is not None:
            status = _read_once(entry) if entry is not None else None
            over = status is not None and status.phase in FINAL_ORDER
            self.open_templates.set(identity, None if over else template.order.owner)
        ledger = self.orders.get(identity)
        if ledger is None:
            return
        if entry is None:
            ledger.phase, ledger.status_revision = "Pending", 0
            return
        # The revision is enough to overwrite poison.
        ledger.status_revision = entry.revision
        status = entry.read()
        ledger.phase, ledger.answered = status.phase, status.answered
        if status.expired:
            ledger.expire(status.expired)
        ledger.give_way(status.replaced_by)
        if ledger.phase in FINAL_ORDER:
            self._close(identity)

    def _close(self, identity: str) -> None:
        """The order is final or gone: its remaining placements are strays."""
        ledger = self.orders.pop(identity, None)
        if ledger is None:
            return
        _count(self.open_orders, ledger.order.owner, -1)
        self._count_waiting(ledger, 0)
        for live in ledger.live.values():
            self.strays.setdefault(identity, set()).add((live.fulfilment.target, live.fulfilment.id))

    def _count_waiting(self, ledger: OrderLedger, waiting: int) -> None:
        self.waiting_orders += bool(waiting) - bool(ledger.counted)
        self.waiting_tasks += waiting - ledger.counted
        _count(self.waiting_tasks_of, ledger.order.owner, waiting - ledger.counted)
        ledger.counted = waiting

    def _take_desired(self, delta: Delta, touched: Touched) -> None:
        target, identity = delta.parts
        touched.targets.add(target)
        if delta.new is None:
            self._drop(target, identity, touched)
            return
        fulfilment = delta.new.object()
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
        placed_before = fulfilment.id in ledger.live
        ledger.place(fulfilment, revision)
        seen = self.cache.snapshot.get(keys.INVENTORY, fulfilment.target, fulfilment.id)
        if not placed_before and seen is not None:
            ledger.observe(fulfilment.id, seen.readable(), seen.revision)

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
            _check(delta)
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
        ledger.observe(identity, delta.new.readable(), delta.new.revision)
        _check(delta)


def _check(delta: Delta) -> None:
    """Broken when the new value is not sane. Values of large trees that are seldom read are not kept decoded."""
    rule = keys.rule_of(delta.tree, delta.parts) if delta.new is not None else None
    if rule is None or delta.new is None:
        return
    if delta.tree in _SELDOM_READ:
        delta.new.read()
    else:
        delta.new.object()


def _only_stats(delta: Delta) -> bool:
    """Whether only the statistics of a session changed, which no decision depends on."""
    old: Live | None = delta.old.readable() if delta.old is not None else None
    new: Live | None = delta.new.readable() if delta.new is not None else None
    return old is not None and new is not None and old.same_but_stats(new)


def _in_time(delta: Delta) -> tuple[int, int]:
    return delta.revision, _RANK.get(delta.tree, 9)


def _read_once(entry: Entry[OrderStatus]) -> OrderStatus | None:
    """The status on record; None for poison. Not kept decoded: there are many final orders."""
    try:
        return entry.read()
    except Broken:
        return None


def _count(numbers: Counter[str], owner: str, by: int) -> None:
    numbers[owner] += by
    if not numbers[owner]:
        del numbers[owner]
