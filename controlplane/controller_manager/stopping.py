"""The fulfilments of an order that have to stop, and why: cancelled, failed, late, or a task has to leave.

Of several tasks in a fulfilment only the leaving tasks stop; the others go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from controlplane.cache import wishes
from controlplane.cache.ledger import LiveFulfilment, OrderLedger
from controlplane.controller_manager import release
from controlplane.model import failure
from controlplane.model.fulfilment import TaskRef, TaskStop
from controlplane.model.order import Order
from controlplane.model.task import ENDED
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
        if reason is not None:
            yield release.stop(live.fulfilment, reason, epoch=epoch, revision=live.revision)
        elif some := list(singles(order, live)):
            yield _stop(live, some, epoch=epoch)


def _stop(live: LiveFulfilment, some: Sequence[TaskStop], *, epoch: int) -> Item:
    if len(live.fulfilment.tasks) == 1:
        return release.stop(live.fulfilment, some[0].reason, epoch=epoch, revision=live.revision)
    return release.stop_some(live.fulfilment, some, epoch=epoch, revision=live.revision)


def why_all(ledger: OrderLedger, *, late: bool) -> str | None:
    if ledger.order.cancel:
        return failure.CANCELLED
    if ledger.doomed:
        return failure.ORDER_FAILED
    return failure.DEADLINE_EXCEEDED if late else None


def singles(order: Order, live: LiveFulfilment) -> Iterator[TaskStop]:
    """Tasks that the user wants to leave, without those that were asked already or ended by themselves."""
    seen = live.observed.tasks if live.observed is not None else ()
    past = {(task.job, task.index) for task in seen if task.phase in ENDED}
    past.update((task.job, task.index) for task in live.fulfilment.stop)
    for task in live.fulfilment.tasks:
        reason = why_one(order, task) if (task.job, task.index) not in past else None
        if reason is not None:
            yield TaskStop(job=task.job, index=task.index, reason=reason)


def why_one(order: Order, task: TaskRef) -> str | None:
    if wishes.cancelled(order, task.job, task.index):
        return failure.CANCELLED
    return failure.MOVED if wishes.moved(order, task.job, task.index, task.attempt) else None
