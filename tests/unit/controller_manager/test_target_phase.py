"""The phase of a target, and that it only changes along its table."""

from __future__ import annotations

import itertools

import pytest

from controlplane.controller_manager.target_phase import TargetState, phase_of, reason_of
from controlplane.model.errors import IllegalTransition
from controlplane.model.lifecycle import TARGET, TargetPhase, may_follow
from controlplane.model.target import Live, Target, TargetStatus

PLAIN = Target(name="t")
CORDONED = Target(name="t", cordoned=True)
DRAINED = Target(name="t", drain=True)
BOTH = Target(name="t", drain=True, cordoned=True)
SUSPECT, GRACE = 1.0, 5.0


def a_session(leftovers: int = 0) -> Live:
    return Live(target="t", session="1", instance="i", secret_digest="", driver="process", leftovers=leftovers)


def a_sight(
    target: Target | None, live: Live | None, before: str | None, *, placed: int = 0, silent: float = 0.0
) -> TargetState:
    status = TargetStatus(target="t", epoch=1, phase=before) if before is not None else None
    return TargetState(target, live, placed, status, silent=silent, suspect=SUSPECT, grace=GRACE)


@pytest.mark.parametrize(
    ("sight", "phase"),
    [
        (a_sight(None, a_session(), "Ready"), "Gone"),
        (a_sight(None, a_session(), "Ready", placed=1), "Ready"),
        (a_sight(PLAIN, None, None), "Provisioning"),
        (a_sight(PLAIN, None, "Provisioning", silent=9), "Provisioning"),
        (a_sight(PLAIN, None, "Provisioning", silent=9, placed=1), "Suspect"),
        (a_sight(PLAIN, a_session(), None), "Ready"),
        (a_sight(PLAIN, a_session(), "Failed"), "Ready"),
        (a_sight(PLAIN, a_session(), "Suspect"), "Ready"),
        (a_sight(PLAIN, None, "Ready", silent=0.5), "Ready"),
        (a_sight(PLAIN, None, "Ready", silent=1), "Suspect"),
        (a_sight(PLAIN, None, "Ready", silent=9), "Suspect"),
        (a_sight(PLAIN, None, "Suspect", silent=4), "Suspect"),
        (a_sight(PLAIN, None, "Suspect", silent=5), "Failed"),
        (a_sight(PLAIN, None, "Failed", silent=0), "Failed"),
        (a_sight(CORDONED, a_session(), "Ready"), "Cordoned"),
        (a_sight(CORDONED, None, "Cordoned", silent=1), "Suspect"),
        (a_sight(PLAIN, a_session(), "Cordoned"), "Ready"),
        (a_sight(DRAINED, a_session(), "Ready", placed=2), "Draining"),
        (a_sight(DRAINED, a_session(), "Ready"), "Draining"),
        (a_sight(DRAINED, a_session(), "Draining", placed=1), "Draining"),
        (a_sight(DRAINED, a_session(), "Draining"), "Drained"),
        (a_sight(DRAINED, a_session(), "Drained", placed=1), "Draining"),
        (a_sight(BOTH, a_session(), "Cordoned", placed=1), "Draining"),
        (a_sight(CORDONED, a_session(), "Drained"), "Cordoned"),
        (a_sight(DRAINED, None, "Draining", silent=2, placed=1), "Suspect"),
        (a_sight(PLAIN, a_session(), "Drained"), "Ready"),
    ],
)
def test_the_phase_follows_from_the_session_the_wishes_and_the_time(sight: TargetState, phase: str) -> None:
    assert phase_of(sight) == phase


@pytest.mark.parametrize("before", ["Suspect", "Failed", "Cordoned", "Draining", "Drained", "Provisioning"])
def test_a_target_is_not_ready_before_what_is_left_of_its_old_work_is_dead(before: str) -> None:
    dying = a_sight(PLAIN, a_session(leftovers=1), before)
    assert (phase_of(dying), reason_of(dying, TargetPhase(before))) == (before, "StopsOldWork")
    assert phase_of(a_sight(PLAIN, a_session(leftovers=0), before)) == "Ready"


def test_a_ready_target_stays_ready_while_a_single_attempt_dies() -> None:
    assert phase_of(a_sight(PLAIN, a_session(leftovers=1), "Ready")) == "Ready"


def test_a_drained_target_is_empty_only_when_nothing_dies_there_any_more() -> None:
    assert phase_of(a_sight(DRAINED, a_session(leftovers=1), "Draining")) == "Draining"


def test_a_phase_that_nobody_knows_counts_as_none() -> None:
    assert phase_of(a_sight(PLAIN, a_session(), "Sunny")) == "Ready"


def test_no_step_leaves_the_table_and_every_target_comes_to_rest() -> None:
    targets = (PLAIN, CORDONED, DRAINED, BOTH, None)
    sessions = (a_session(), a_session(leftovers=2), None)
    for target, live, silent, placed, before in itertools.product(targets, sessions, (0, 2, 9), (0, 1), TargetPhase):
        if before == TargetPhase.GONE:
            continue
        now = before.value
        for _ in range(3):
            after = phase_of(a_sight(target, live, now, placed=placed, silent=silent)).value
            assert may_follow(TARGET, now, after), (now, after)
            now = after
        assert phase_of(a_sight(target, live, now, placed=placed, silent=silent)) == now, "it never rests"


def test_nothing_follows_gone() -> None:
    with pytest.raises(IllegalTransition):
        phase_of(a_sight(PLAIN, a_session(), "Gone"))
