"""The phase of an order, folded from the counts of its tasks."""

from __future__ import annotations

from controlplane.model.lifecycle import OrderPhase
from controlplane.model.order import Counts


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
