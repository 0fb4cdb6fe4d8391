"""Folding: the status of an order from the states of its tasks, and the final status with the last ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from controlplane.cache import wishes
from controlplane.cache.ledger import OrderLedger
from controlplane.model.fulfilment import Ended
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import Counts, OrderStatus
from controlplane.model.progress import phase_of


def fold(ledger: OrderLedger, *, epoch: int, now: str, before: OrderStatus | None) -> OrderStatus | None:
    """The order's status now; None when the stored status says the same."""
    status = status_of(ledger, epoch=epoch, now=now, before=before)
    if before is None and status.phase == "Pending" and not ledger.changed and not ledger.expired:
        return None
    if before is not None and _same(before, status, ledger):
        return None
    return status


def _same(before: OrderStatus, status: OrderStatus, ledger: OrderLedger) -> bool:
    if (before.phase, before.counts, before.percent) != (status.phase, status.counts, status.percent):
        return False
    # A user who never changed the order waits for no answer.
    return before.answered == status.answered or not ledger.changed


def status_of(ledger: OrderLedger, *, epoch: int, now: str, before: OrderStatus | None) -> OrderStatus:
    counts = ledger.counts()
    order = ledger.order
    began = bool(ledger.live) or ledger.ended_any
    excused = wishes.excused(order, ledger.jobs)
    phase = phase_of(counts, cancel=order.cancel, paused=order.paused, began=began, excused=excused)
    return OrderStatus(
        order=order.id,
        epoch=epoch,
        phase=phase,
        counts=counts,
        percent=ledger.percent(),
        started=(before.started if before is not None else None) or (now if began else None),
        finished=now if phase in FINAL_ORDER else None,
        answered=ledger.revision,
        expired=tuple(sorted(ledger.expired)),
    )


def finish(
    ledger: OrderLedger, ends: Sequence[Ended], *, epoch: int, now: str, before: OrderStatus | None
) -> OrderStatus | None:
    """The final status when the order waits for these ends only; None when the order is not over with them."""
    if not ends or len(ends) != len(ledger.live):
        return None
    counts = ledger.counts()
    order = ledger.order
    decided = Counter(task.decision for ended in ends for task in ended.tasks)
    succeeded, failed = decided["done"] + decided["ignore"], decided["fail"] + decided["fail_order"]
    over = succeeded + failed + decided["cancel"]
    if counts.pending or counts.held or over != decided.total() or over != counts.placed + counts.running:
        return None
    final = Counts(
        succeeded=counts.succeeded + succeeded,
        failed=counts.failed + failed,
        cancelled=counts.cancelled + decided["cancel"],
    )
    excused = wishes.excused(order, ledger.jobs) + _cancelled_now(ledger, ends)
    return OrderStatus(
        order=order.id,
        epoch=epoch,
        phase=phase_of(final, cancel=order.cancel, paused=order.paused, began=True, excused=excused),
        counts=final,
        percent=ledger.percent(ending=over),
        started=(before.started if before is not None else None) or now,
        finished=now,
        answered=ledger.revision,
        expired=tuple(sorted(ledger.expired)),
    )


def _cancelled_now(ledger: OrderLedger, ends: Sequence[Ended]) -> int:
    if not ledger.order.cancel_tasks:
        return 0
    tasks = (task for ended in ends for task in ended.tasks if task.decision == "cancel")
    return sum(wishes.cancelled(ledger.order, task.job, task.index) for task in tasks)
