"""Folding: the status of an order from the states of its tasks, and the final status with the last ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from controlplane.cache import wishes
from controlplane.cache.ledger import OrderLedger
from controlplane.model.fulfilment import Ended
from controlplane.model.lifecycle import FINAL_ORDER, OrderPhase
from controlplane.model.order import Counts, OrderStatus
from controlplane.model.task import FINAL_TASK, TaskEvent, TaskPhase, phase_after


def fold(ledger: OrderLedger, *, epoch: int, now: str, before: OrderStatus | None) -> OrderStatus | None:
    """The order's status now; None when the stored status says the same."""
    status = status_of(ledger, epoch=epoch, now=now, before=before)
    if before is None and status.phase == OrderPhase.PENDING and not ledger.changed and not ledger.expired:
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
    began = bool(ledger.live) or ledger.ended_any or (before is not None and before.started is not None)
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
    phases = Counter(phase_after(task.decision) for ended in ends for task in ended.tasks)
    over = phases.total()
    if counts.pending or counts.held or not FINAL_TASK.issuperset(phases) or over != counts.placed + counts.running:
        return None
    final = Counts(
        succeeded=counts.succeeded + phases[TaskPhase.SUCCEEDED],
        failed=counts.failed + phases[TaskPhase.FAILED],
        cancelled=counts.cancelled + phases[TaskPhase.CANCELLED],
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


def phase_of(counts: Counts, *, cancel: bool, paused: bool, began: bool, excused: int = 0) -> OrderPhase:
    """`began`: a task was placed at least once. A final phase needs every task to have ended.

    `excused`: tasks that the user cancelled singly; they do not fail the order.
    """
    if counts.pending + counts.placed + counts.running + counts.held == 0:
        if counts.cancelled and cancel:
            return OrderPhase.CANCELLED
        if counts.failed or counts.cancelled > excused:
            return OrderPhase.FAILED
        if counts.cancelled and not counts.succeeded:
            return OrderPhase.CANCELLED
        return OrderPhase.SUCCEEDED
    if paused:
        return OrderPhase.PAUSED
    if began:
        return OrderPhase.RUNNING
    return OrderPhase.PENDING


def _cancelled_now(ledger: OrderLedger, ends: Sequence[Ended]) -> int:
    if not ledger.order.cancel_tasks:
        return 0
    tasks = (task for ended in ends for task in ended.tasks if task.decision == TaskEvent.CANCEL)
    return sum(wishes.cancelled(ledger.order, task.job, task.index) for task in tasks)
