"""Which fulfilments of an order have to stop, and why: it was cancelled, it failed, it is late, a task is to leave."""

from __future__ import annotations

from collections.abc import Iterator

from controlplane.cache import wishes
from controlplane.cache.ledger import OrderLedger
from controlplane.controller_manager import release
from controlplane.model import failure
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.order import Order
from controlplane.store.transaction import Item


def stops(ledger: OrderLedger, *, late: bool, epoch: int) -> Iterator[Item]:
    """Asks for each stop once. `late`: the order's deadline has passed."""
    order = ledger.order
    reason = why_all(ledger, late=late)
    if reason is None and not order.cancel_tasks and not order.moves:
        return
    for identity, live in ledger.live.items():
        if live.fulfilment.want == "stop" or identity in ledger.over:
            continue
        why = reason or why_one(order, live.fulfilment)
        if why is not None:
            yield release.stop(live.fulfilment, why, epoch=epoch, revision=live.revision)


def why_all(ledger: OrderLedger, *, late: bool) -> str | None:
    if ledger.order.cancel:
        return failure.CANCELLED
    if ledger.doomed:
        return failure.ORDER_FAILED
    return failure.DEADLINE_EXCEEDED if late else None


def why_one(order: Order, fulfilment: Fulfilment) -> str | None:
    for task in fulfilment.tasks:
        if wishes.cancelled(order, task.job, task.index):
            return failure.CANCELLED
        if wishes.moved(order, task.job, task.index, task.attempt):
            return failure.MOVED
    return None
