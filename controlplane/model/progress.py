"""The phase of an order, folded from where its tasks stand."""

from __future__ import annotations

from controlplane.model.lifecycle import OrderPhase
from controlplane.model.order import Counts


def phase_of(counts: Counts, *, cancel: bool, paused: bool, began: bool) -> OrderPhase:
    """`began`: something was placed at least once. A final phase needs every task to have ended."""
    if counts.pending + counts.placed + counts.running + counts.held == 0:
        if counts.cancelled and cancel:
            return OrderPhase.CANCELLED
        if counts.failed or counts.cancelled:
            return OrderPhase.FAILED
        return OrderPhase.SUCCEEDED
    if paused:
        return OrderPhase.PAUSED
    if began:
        return OrderPhase.RUNNING
    return OrderPhase.PENDING
