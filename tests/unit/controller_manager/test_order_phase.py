"""The phase of an order follows from its counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.controller_manager.folding import phase_of
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import Counts

COUNTS = st.builds(
    Counts,
    **{
        name: st.integers(0, 2) for name in ("pending", "placed", "running", "succeeded", "failed", "cancelled", "held")
    },
)


@given(COUNTS, st.booleans(), st.booleans(), st.booleans())
def test_an_order_is_final_exactly_when_nothing_of_it_is_open(
    counts: Counts, cancel: bool, paused: bool, began: bool
) -> None:
    open_tasks = counts.pending + counts.placed + counts.running + counts.held
    phase = phase_of(counts, cancel=cancel, paused=paused, began=began)
    assert (phase in FINAL_ORDER) == (open_tasks == 0)


@pytest.mark.parametrize(
    ("counts", "cancel", "phase"),
    [
        (Counts(succeeded=2), False, "Succeeded"),
        (Counts(succeeded=2), True, "Succeeded"),
        (Counts(succeeded=1, failed=1), False, "Failed"),
        (Counts(succeeded=1, cancelled=1), True, "Cancelled"),
        (Counts(failed=1, cancelled=1), True, "Cancelled"),
        (Counts(succeeded=1, cancelled=1), False, "Failed"),
    ],
)
def test_the_final_phase_says_how_it_went(counts: Counts, cancel: bool, phase: str) -> None:
    assert phase_of(counts, cancel=cancel, paused=False, began=True) == phase


@pytest.mark.parametrize(
    ("paused", "began", "phase"),
    [(False, False, "Pending"), (False, True, "Running"), (True, False, "Paused"), (True, True, "Paused")],
)
def test_an_open_order_is_pending_running_or_paused(paused: bool, began: bool, phase: str) -> None:
    assert phase_of(Counts(pending=1), cancel=False, paused=paused, began=began) == phase
