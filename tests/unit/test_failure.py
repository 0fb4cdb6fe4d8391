"""What follows the end of an attempt."""

from __future__ import annotations

import pytest

from controlplane.model import failure
from controlplane.model.fulfilment import ObservedTask


def seen(phase: str, *, reason: str = "", attempt: int = 1, finished: str = "") -> ObservedTask:
    return ObservedTask(job="j", index=0, attempt=attempt, phase=phase, reason=reason, finished=finished)


@pytest.mark.parametrize("reason", sorted(failure.RETRIED))
def test_the_fifth_retry_of_a_lost_attempt_is_the_last(reason: str) -> None:
    decisions = [failure.decide(seen("Failed", reason=reason, attempt=n), cancelled=False) for n in range(1, 8)]
    assert decisions == ["retry"] * 5 + ["fail"] * 2


@pytest.mark.parametrize(
    ("phase", "reason", "cancelled", "decision"),
    [
        ("Succeeded", "", False, "done"),
        ("Succeeded", "", True, "done"),
        ("Failed", "ExitCode", False, "fail"),
        ("Failed", "ExitCode", True, "cancel"),
        ("Failed", "TargetLost", True, "cancel"),
        ("Cancelled", "", False, "cancel"),
        ("Cancelled", "Cancelled", True, "cancel"),
        ("Cancelled", "Preempted", False, "retry"),
    ],
)
def test_the_decision_follows_from_phase_reason_and_wish(
    phase: str, reason: str, cancelled: bool, decision: str
) -> None:
    assert failure.decide(seen(phase, reason=reason), cancelled=cancelled) == decision


def test_a_cancelled_attempt_is_recorded_as_cancelled_whatever_killed_it() -> None:
    assert failure.end(seen("Failed", reason="ExitCode"), cancelled=True, finished="t").phase == "Cancelled"


def test_the_joblets_own_time_of_the_end_goes_before_the_leaders() -> None:
    assert failure.end(seen("Failed", finished="theirs"), cancelled=False, finished="ours").finished == "theirs"
    assert failure.end(seen("Failed"), cancelled=False, finished="ours").finished == "ours"
