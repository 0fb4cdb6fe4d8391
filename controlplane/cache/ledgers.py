"""All ledgers of a replica, kept current from the cache's changes: orders under way and what targets carry.

Warm on every replica, so that a new leader needs no hand-over. A finished order has no ledger. Poison in etcd is
counted and stepped over: the rest goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.reflector import Cache, Delta
from controlplane.cache.snapshot import Entry
from controlplane.model.errors import Broken
from controlplane.model.fulfilment import Ended, Fulfilment, Observed
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import Order, OrderStatus, Resolved
from controlplane.model.quantity import Number
from controlplane.store import codec, keys

log = structlog.get_logger(__name__)

# Within one revision, an order comes before what refers to it and an end before the disappearance it explains.
_RANK = {"config/orders": 0, "status/ended": 1, "desired": 2, "inventory": 3, "status/orders": 4}


@dataclass(slots=True)
class TargetLedger:
    """What is placed on one target: how much of each quantity, by which fulfilments of which orders."""

    used: dict[str, Number] = field(default_factory=dict)
    fulfilments: dict[str, str] = field(default_factory=dict)

    def add(self, fulfilment: Fulfilment) -> None:
        self.fulfilments[fulfilment.id] = fulfilment.order
        for name, amount in fulfilment.requests.items():
            self.used[name] = self.used.get(name, 0) + amount

    def remove(self, fulfilment: Fulfilment) -> None:
        if self.fulfilments.pop(fulfilment.id, None) is None:
            return
        for name, amount in fulfilment.requests.items():
            self.used[name] = self.used.get(name, 0) - amount
        if not self.fulfilments:
            self.used.clear()


@dataclass(slots=True)
class Touched:
    """What one batch of changes concerned."""

    orders: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    config: set[str] = field(default_factory=set)


class Ledgers:
    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.orders: dict[str, OrderLedger] = {}
        self.targets: dict[str, TargetLedger] = {}
        self.poisoned: set[str] = set()
        self._resolved: dict[str, Resolved] = {}
        self._listeners: list[Callable[[Touched], None]] = []
        cache.subscribe(self._hear)

    def subscribe(self, listener: Callable[[Touched], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def target(self, name: str) -> TargetLedger:
        return self.targets.get(name) or TargetLedger()

    def resolved(self, order: Order) -> Resolved:
        """The order's packet as it was; one decoded copy for all orders with the same content."""
        found = self._resolved.get(order.resolved_digest)
        if found is None:
            found = self._resolved[order.resolved_digest] = codec.decode(bytes(order.resolved), Resolved)
            if len(self._resolved) > 10_000:
                self._resolved.pop(next(iter(self._resolved)))
        return found

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        touched = Touched()
        for delta in deltas if len(deltas) == 1 else sorted(deltas, key=_in_time):
            try:
                self._take(delta, touched)
                if self.poisoned:
                    self.poisoned.discard(self._name(delta))
            except Broken as error:
                self.poisoned.add(self._name(delta))
                log.error("a value in etcd cannot be read, stepping over it", key=self._name(delta), error=str(error))
        for listener in tuple(self._listeners):
            listener(touched)

    @staticmethod
    def _name(delta: Delta) -> str:
        return "/".join((delta.tree, *delta.parts))

    def _take(self, delta: Delta, touched: Touched) -> None:
        match delta.tree:
            case "config/orders":
                self._take_order(delta.parts[0], delta.new)
                touched.orders.add(delta.parts[0])
            case "status/ended":
                ledger = self.orders.get(delta.parts[0])
                if ledger is not None and delta.new is not None:
                    ledger.end(delta.new.read(Ended))
                touched.orders.add(delta.parts[0])
            case "desired":
                self._take_desired(delta, touched)
            case "inventory":
                self._take_inventory(delta, touched)
            case "status/orders":
                self._take_status(delta.parts[0], delta.new)
                touched.orders.add(delta.parts[0])
            case "config/targets" | "status/targets":
                touched.targets.add(delta.parts[0])
            case _:
                touched.config.add(delta.tree)

    def _take_order(self, identity: str, entry: Entry | None) -> None:
        if entry is None:
            self.orders.pop(identity, None)
            return
        order = entry.read(Order)
        known = self.orders.get(identity)
        if known is not None:
            known.order, known.revision = order, entry.revision
            return
        status = self.cache.snapshot.get("status/orders", identity)
        if status is not None and _phase(status) in FINAL_ORDER:
            return
        ledger = OrderLedger.open(order, entry.revision, self.resolved(order))
        self.orders[identity] = ledger
        if status is not None:
            ledger.phase, ledger.status_revision = _phase(status), status.revision

    def _take_status(self, identity: str, entry: Entry | None) -> None:
        ledger = self.orders.get(identity)
        if ledger is None:
            return
        if entry is None:
            ledger.phase, ledger.status_revision = "Pending", 0
            return
        ledger.phase, ledger.status_revision = _phase(entry), entry.revision
        if ledger.phase in FINAL_ORDER and not ledger.live:
            del self.orders[identity]

    def _take_desired(self, delta: Delta, touched: Touched) -> None:
        target, identity = delta.parts
        touched.targets.add(target)
        old = delta.old.sound(Fulfilment) if delta.old is not None else None
        if delta.new is None:
            if old is not None:
                self._drop(target, old, touched)
            return
        fulfilment = delta.new.object(Fulfilment)
        touched.orders.add(fulfilment.order)
        if old is None:
            self.targets.setdefault(target, TargetLedger()).add(fulfilment)
        ledger = self.orders.get(fulfilment.order)
        if ledger is not None:
            ledger.place(fulfilment, delta.new.revision)
            seen = self.cache.snapshot.get("inventory", target, identity)
            if old is None and seen is not None:
                self._observe(ledger, identity, seen)

    def _drop(self, target: str, fulfilment: Fulfilment, touched: Touched) -> None:
        touched.orders.add(fulfilment.order)
        there = self.targets.get(target)
        if there is not None:
            there.remove(fulfilment)
            if not there.fulfilments:
                del self.targets[target]
        ledger = self.orders.get(fulfilment.order)
        if ledger is not None:
            ledger.unplace(fulfilment.id)
            if ledger.phase in FINAL_ORDER and not ledger.live:
                del self.orders[fulfilment.order]

    def _take_inventory(self, delta: Delta, touched: Touched) -> None:
        target, identity = delta.parts
        if identity == keys.LIVE:
            touched.targets.add(target)
            return
        placed = self.cache.snapshot.get("desired", target, identity)
        fulfilment = placed.sound(Fulfilment) if placed is not None else None
        ledger = self.orders.get(fulfilment.order) if fulfilment is not None else None
        if ledger is None or delta.new is None:
            return
        touched.orders.add(ledger.order.id)
        self._observe(ledger, identity, delta.new)

    @staticmethod
    def _observe(ledger: OrderLedger, identity: str, entry: Entry) -> None:
        ledger.observe(identity, entry.object(Observed), entry.revision)


def _in_time(delta: Delta) -> tuple[int, int]:
    return delta.revision, _RANK.get(delta.tree, 9)


def _phase(entry: Entry) -> str:
    return entry.read(OrderStatus).phase
