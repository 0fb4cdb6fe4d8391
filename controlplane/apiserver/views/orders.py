"""Orders: as stored, joined with the leader's status; for one order also why its tasks wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controlplane.apiserver.reading import read_once
from controlplane.apiserver.views.order_index import OrderIndex
from controlplane.apiserver.views.reasons import Reasons
from controlplane.apiserver.views.view import Filter
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.engine.reasons import Part
from controlplane.model.errors import Broken
from controlplane.model.lifecycle import FINAL_ORDER, OrderPhase
from controlplane.model.order import Order, OrderStatus, content_digest
from controlplane.wire import convert
from controlplane.wire.v1 import orders_pb2

TREE = "config/orders"
STATUS = "status/orders"
_MOST_RESOLVED = 200
# What a user may have said of an order since it was submitted, in lists.
_WISHES = ("resources", "cancel_tasks", "moves", "releases", "stopped")


class OrderView:
    trees = (TREE, STATUS)

    def __init__(self, ledgers: Ledgers, index: OrderIndex, reasons: Reasons) -> None:
        self._ledgers = ledgers
        self._index = index
        self._reasons = reasons
        self._resolved: dict[str, Any] = {}

    def keys(self, _snapshot: Snapshot, wanted: Filter, after: str) -> Iterator[str]:
        return iter([wanted.name]) if wanted.name else self._index.after(after)

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        ours = delta.tree in (TREE, STATUS) and wanted.name in ("", delta.parts[0])
        return delta.parts[0] if ours else None

    def removes(self, delta: Delta) -> bool:
        return delta.tree == TREE and delta.new is None

    def phase(self, snapshot: Snapshot, key: str) -> str:
        status = status_in(snapshot.get(STATUS, key))
        return status.phase if status is not None else OrderPhase.PENDING

    def order(self, entry: Entry) -> Order:
        ledger = self._ledgers.orders.get(entry.parts[0])
        if ledger is not None and ledger.revision == entry.revision:
            return ledger.order
        return read_once(entry, Order)

    def read(self, snapshot: Snapshot, key: str) -> tuple[Any, int] | None:
        entry = snapshot.get(TREE, key)
        if entry is None:
            return None
        status = snapshot.get(STATUS, key)
        message = self.show(self.order(entry), entry.revision, status_in(status))
        return message, max(entry.revision, status.revision if status is not None else 0)

    def show(self, order: Order, revision: int, status: OrderStatus | None, *, resolved: bool = True) -> Any:
        """Without `resolved`, what the order's packet resolved to is left out."""
        message = orders_pb2.Order(
            id=order.id, priority=order.priority, owner=order.owner, creator=order.creator, created=order.created,
            revision=revision, labels=order.labels, target_policy=order.target_policy, deadline=order.deadline,
            not_before=order.not_before, orchestration=order.orchestration, preempts=order.preempts,
            cancel=order.cancel, paused=order.paused, tasks_total=order.tasks_total, digest=order.digest,
            template=order.template, scheduled=order.scheduled,
        )  # fmt: skip
        message.packet.name = order.packet
        for policy in order.failure_policies:
            convert.fill(policy, message.failure_policies.add())
        for field in _WISHES:
            for item in getattr(order, field):
                convert.fill(item, getattr(message, field).add())
        if order.schedule is not None:
            convert.fill(order.schedule, message.schedule)
        if resolved:
            message.resolved.CopyFrom(self._resolved_of(order))
        if status is None:
            message.status.phase = OrderPhase.PENDING
            # A recurring order has no tasks of its own.
            message.status.counts.pending = order.tasks_total if order.schedule is None else 0
        else:
            convert.fill(status, message.status)
        return message

    def waits(self, identity: str, min_revision: int) -> dict[Part, str]:
        """Why pending tasks wait, by job and where they may go."""
        ledger = self._ledgers.orders.get(identity)
        return self._reasons.of_parts(ledger, min_revision) if ledger is not None else {}

    def explain(self, message: Any, min_revision: int = 0) -> None:
        """Counts as they are at this moment, which agree with the reasons why tasks wait; stored ones are older."""
        ledger = self._ledgers.orders.get(message.id)
        if ledger is None or ledger.phase in FINAL_ORDER:
            return
        convert.fill(ledger.counts(), message.status.counts)
        message.status.percent = ledger.percent()
        for reason in self._reasons.of(ledger, min_revision):
            message.status.reasons.add(reason=reason.reason, count=reason.count)

    def _resolved_of(self, order: Order) -> Any:
        content = content_digest(order.resolved)
        found = self._resolved.get(content)
        if found is None:
            found = convert.to_wire(self._ledgers.resolved(order), orders_pb2.Resolved)
            if len(self._resolved) >= _MOST_RESOLVED:
                self._resolved.pop(next(iter(self._resolved)))
            self._resolved[content] = found
        return found

    def bare(self, key: str) -> Any:
        return orders_pb2.Order(id=key)


def status_in(entry: Entry | None) -> OrderStatus | None:
    """The leader's word on the order; None when there is none that can be read."""
    if entry is None:
        return None
    try:
        return entry.read(OrderStatus)
    except Broken:
        return None
