"""The phase of a target, and that it only changes along its table."""

from __future__ import annotations

import itertools

import pytest

from controlplane.controller_manager.targets import phase_of
from controlplane.model import lifecycle
from controlplane.model.lifecycle import TARGET, TargetPhase
from controlplane.model.target import Target

PLAIN = Target(name="t")
CORDONED = Target(name="t", cordoned=True)


@pytest.mark.parametrize(
    ("target", "live", "grace_left", "before", "phase"),
    [
        (None, True, 5, "Ready", "Gone"),
        (PLAIN, False, 5, None, "Provisioning"),
        (PLAIN, False, -1, "Provisioning", "Provisioning"),
        (PLAIN, True, 5, None, "Ready"),
        (PLAIN, True, 5, "Failed", "Ready"),
        (PLAIN, False, 5, "Ready", "Suspect"),
        (PLAIN, False, 0, "Ready", "Failed"),
        (PLAIN, False, 0, "Suspect", "Failed"),
        (PLAIN, False, 5, "Failed", "Failed"),
        (CORDONED, True, 5, "Ready", "Cordoned"),
        (CORDONED, False, 5, "Cordoned", "Suspect"),
    ],
)
def test_the_phase_follows_from_the_session_and_the_grace_time(
    target: Target | None, live: bool, grace_left: float, before: str | None, phase: str
) -> None:
    assert phase_of(target, live=live, grace_left=grace_left, before=before) == phase


def test_no_step_leaves_the_table() -> None:
    """A grace time that ends unseen skips Suspect: both steps are in the table, one after the other."""
    steps = lifecycle.steps(TARGET)
    for target, live, left, before in itertools.product((PLAIN, CORDONED), (True, False), (1.0, -1.0), TargetPhase):
        if before in (TargetPhase.GONE, TargetPhase.DRAINING, TargetPhase.DRAINED):
            continue
        after = phase_of(target, live=live, grace_left=left, before=before).value
        through_suspect = (before.value, "Suspect") in steps and ("Suspect", after) in steps
        assert (before.value, after) in steps or through_suspect, (before, after)
