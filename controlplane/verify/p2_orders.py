"""P2: an acknowledged order is never lost, and a repeated submit of the same identity is one order.

An order's key is created once; what it resolved to and the request it was made from never change; it goes only when
its status was final before. Every identity that a client was answered for is there, or was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controlplane.model import identity, schedule, times
from controlplane.model.errors import Invalid
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import Order, OrderStatus
from controlplane.model.settings import DEFAULT, Settings
from controlplane.store import keys
from controlplane.verify.history import Event
from controlplane.verify.verdict import Tally, Verdict


@dataclass(slots=True)
class _Known:
    """Hashes stand for what must not change: a history knows many orders."""

    digest: int
    resolved: int
    gone: bool = False


class Orders:
    def __init__(self) -> None:
        self._tally = Tally("P2", "no order was submitted, changed or deleted")
        self._orders: dict[str, _Known] = {}
        self._final: set[str] = set()
        self._clean_up_seconds = float(DEFAULT.clean_up)
        self._notes: list[str] = []

    def start(self, state: Sequence[Event]) -> None:
        for event in state:
            if event.tree == "config/orders" and isinstance(event.object, Order):
                self._orders[event.parts[0]] = _known(event.object)
            self._follow(event)

    def change(self, revision: int, changes: Sequence[Event]) -> None:
        # Clean-up deletes config and status together: what counts is how the status stood before.
        for event in changes:
            if event.tree == "config/orders":
                self._tally.checked += 1
                self._delete(event) if event.deleted else self._put(event)
        for event in changes:
            self._follow(event)

    def verdict(self) -> Verdict:
        return self._tally.verdict("; ".join(self._notes))

    def acknowledged(self, identities: Iterable[str], *, now_milliseconds: int) -> None:
        """What a client was answered for, judged at the end of the history."""
        old = 0
        for name in identities:
            if name in self._orders:
                self._tally.checked += 1
            elif _age_seconds(name, now_milliseconds) > self._clean_up_seconds:
                old += 1
            else:
                self._tally.checked += 1
                self._tally.broken(keys.order(name), 0, "was acknowledged, but is not in etcd and never was")
        if old:
            self._notes.append(f"{old} acknowledged orders are older than the clean-up time")

    def missing(self, identities: Iterable[str]) -> int:
        """How many of these orders were never there, or went before they were final."""
        return sum(self._is_missing(name) for name in identities)

    def _is_missing(self, name: str) -> bool:
        known = self._orders.get(name)
        return known is None or (known.gone and name not in self._final)

    def _follow(self, event: Event) -> None:
        if event.tree == "status/orders" and isinstance(event.object, OrderStatus):
            if event.object.phase in FINAL_ORDER:
                self._final.add(event.parts[0])
        elif event.tree == "config" and event.parts == ("settings",) and isinstance(event.object, Settings):
            self._clean_up_seconds = float(event.object.clean_up)

    def _put(self, event: Event) -> None:
        name = event.parts[0]
        before = self._orders.get(name)
        if not isinstance(event.object, Order):
            if before is not None and not before.gone:
                self._tally.broken(event.key, event.revision, "was overwritten by what is no order")
            return
        if event.object.id != name:
            self._tally.broken(event.key, event.revision, f"holds the order {event.object.id}")
        if event.is_new and not _is_itself(event.object):
            self._tally.broken(event.key, event.revision, "is a run whose identity its template and time do not give")
        if before is None:
            self._orders[name] = _known(event.object)
        elif event.is_new:
            self._tally.broken(event.key, event.revision, "was created again after it had been deleted")
            self._orders[name] = _known(event.object)
        else:
            self._compare(event, before, _known(event.object))

    def _compare(self, event: Event, before: _Known, after: _Known) -> None:
        if before.digest != after.digest:
            self._tally.broken(event.key, event.revision, "changed the digest of its request")
        if before.resolved != after.resolved:
            self._tally.broken(event.key, event.revision, "changed what it resolved to")

    def _delete(self, event: Event) -> None:
        before = self._orders.get(event.parts[0])
        if before is None:
            return
        before.gone = True
        if event.parts[0] not in self._final:
            self._tally.broken(event.key, event.revision, "was deleted before it was final")


def _is_itself(order: Order) -> bool:
    """A run of a recurring order is the only one of its template and time."""
    if not order.template:
        return True
    try:
        return order.id == schedule.run_identity(order.template, times.parse(order.scheduled or "", "scheduled"))
    except Invalid:
        return False


def _known(order: Order) -> _Known:
    return _Known(hash(order.digest), hash((order.resolved_digest, bytes(order.resolved))))


def _age_seconds(name: str, now_milliseconds: int) -> float:
    try:
        return (now_milliseconds - identity.milliseconds(name)) / 1000
    except Invalid:
        return 0.0
