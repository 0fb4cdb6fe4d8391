"""P2: an acknowledged order is never lost, and a repeated submit of the same identity is one order.

An order's key is created once; its resolved packet and the digest of its request never change; its key is deleted only
after its status was final. Every identity that a client got an acknowledgement for is or was in etcd.
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
from controlplane.verify.history import KeyChange
from controlplane.verify.promise_verdicts import PromiseVerdict, Tally


@dataclass(slots=True)
class _OrderDigests:
    """Hashes of the fields that must not change, since history may hold very many orders."""

    digest: int
    resolved: int
    gone: bool = False


class OrdersCheck:
    """Follows every order's key, and compares the orders that a client was told of."""

    def __init__(self) -> None:
        self._tally = Tally("P2", "no order was submitted, changed or deleted")
        self._orders: dict[str, _OrderDigests] = {}
        self._final: set[str] = set()
        self._clean_up_seconds = float(DEFAULT.clean_up)
        self._notes: list[str] = []

    def start(self, state: Sequence[KeyChange]) -> None:
        for event in state:
            if event.tree == keys.ORDERS and isinstance(event.object, Order):
                self._orders[event.parts[0]] = _digests_of(event.object)
            self._follow(event)

    def change(self, revision: int, changes: Sequence[KeyChange]) -> None:
        # Clean-up deletes config and status together, so the status before this revision counts.
        for event in changes:
            if event.tree == keys.ORDERS:
                self._tally.checked += 1
                self._delete(event) if event.deleted else self._put(event)
        for event in changes:
            self._follow(event)

    def verdict(self) -> PromiseVerdict:
        return self._tally.verdict("; ".join(self._notes))

    def acknowledged(self, identities: Iterable[str], *, now_milliseconds: int) -> None:
        """Judges the identities that a client got acknowledged, at the end of history."""
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
        """How many of these orders never were in etcd, or were deleted before they were final."""
        return sum(self._is_missing(name) for name in identities)

    def _is_missing(self, name: str) -> bool:
        order = self._orders.get(name)
        return order is None or (order.gone and name not in self._final)

    def _follow(self, event: KeyChange) -> None:
        if event.tree == keys.ORDER_STATUS and isinstance(event.object, OrderStatus):
            if event.object.phase in FINAL_ORDER:
                self._final.add(event.parts[0])
        elif event.key == keys.SETTINGS and isinstance(event.object, Settings):
            self._clean_up_seconds = float(event.object.clean_up)

    def _put(self, event: KeyChange) -> None:
        name = event.parts[0]
        before = self._orders.get(name)
        if not isinstance(event.object, Order):
            if before is not None and not before.gone:
                self._tally.broken(event.key, event.revision, "was overwritten by what is no order")
            return
        if event.object.id != name:
            self._tally.broken(event.key, event.revision, f"holds the order {event.object.id}")
        if event.is_new and not _has_own_identity(event.object):
            self._tally.broken(event.key, event.revision, "is a run whose identity its template and time do not give")
        if before is None:
            self._orders[name] = _digests_of(event.object)
        elif event.is_new:
            self._tally.broken(event.key, event.revision, "was created again after it had been deleted")
            self._orders[name] = _digests_of(event.object)
        else:
            self._compare(event, before, _digests_of(event.object))

    def _compare(self, event: KeyChange, before: _OrderDigests, after: _OrderDigests) -> None:
        if before.digest != after.digest:
            self._tally.broken(event.key, event.revision, "changed the digest of its request")
        if before.resolved != after.resolved:
            self._tally.broken(event.key, event.revision, "changed what it resolved to")

    def _delete(self, event: KeyChange) -> None:
        before = self._orders.get(event.parts[0])
        if before is None:
            return
        before.gone = True
        if event.parts[0] not in self._final:
            self._tally.broken(event.key, event.revision, "was deleted before it was final")


def _has_own_identity(order: Order) -> bool:
    """Whether the identity of a run follows from its template and scheduled time; True for other orders."""
    if not order.template:
        return True
    try:
        return order.id == schedule.run_identity(order.template, times.parse(order.scheduled or "", "scheduled"))
    except Invalid:
        return False


def _digests_of(order: Order) -> _OrderDigests:
    return _OrderDigests(hash(order.digest), hash((order.resolved_digest, bytes(order.resolved))))


def _age_seconds(name: str, now_milliseconds: int) -> float:
    try:
        return (now_milliseconds - identity.milliseconds(name)) / 1000
    except Invalid:
        return 0.0
