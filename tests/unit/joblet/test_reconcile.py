"""What to do about one fulfilment, for every combination of desired, stored and seen."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from controlplane.joblet.reconcile import decide, fold, observed_task
from controlplane.model.fulfilment import Fulfilment, Observed, ObservedTask, TaskRef

ONE, TWO = (TaskRef(job="render", index=index, attempt=1) for index in (0, 1))
PHASES = ("Starting", "Running", "Succeeded", "Failed", "Cancelled")


def desired(*tasks: TaskRef, want: str = "run") -> Fulfilment:
    reason = "Cancelled" if want == "stop" else ""
    return Fulfilment(id="F", epoch=1, cycle=1, order="O", target="T", tasks=tasks or (ONE,), want=want, reason=reason)


def stored(*tasks: ObservedTask) -> Observed:
    phase = fold([task.phase for task in tasks])
    return Observed(id="F", target="T", session="S", report=1, phase=phase, tasks=tasks)


def test_what_is_new_is_announced_and_not_yet_started() -> None:
    decision = decide(desired(), None, {}, trusted=False)
    assert (decision.phase, decision.start, decision.stop) == ("Starting", (), ())


def test_what_was_announced_is_started() -> None:
    decision = decide(desired(), stored(observed_task(ONE, "Starting")), {}, trusted=True)
    assert decision.start == (ONE,)
    assert decision.phase == "Starting"


def test_what_an_unknown_session_announced_is_lost() -> None:
    decision = decide(desired(), stored(observed_task(ONE, "Starting")), {}, trusted=False)
    assert decision.start == ()
    assert (decision.phase, decision.tasks[0].reason) == ("Failed", "Lost")


@pytest.mark.parametrize(
    ("phase", "want", "trusted", "seen"),
    list(itertools.product((None, *PHASES), ("run", "stop"), (True, False), (None, *PHASES))),
)
def test_only_an_announced_and_unseen_attempt_is_ever_started(
    phase: str | None, want: str, trusted: bool, seen: str | None
) -> None:
    before = stored(observed_task(ONE, phase)) if phase else None
    here = {ONE: observed_task(ONE, seen)} if seen else {}
    decision = decide(desired(want=want), before, here, trusted=trusted)
    may_start = phase == "Starting" and trusted and want == "run" and seen is None
    assert decision.start == ((ONE,) if may_start else ())


@pytest.mark.parametrize(("phase", "want"), list(itertools.product(PHASES, ("run", "stop"))))
def test_what_is_seen_is_what_is_said(phase: str, want: str) -> None:
    actual = msgspec.structs.replace(observed_task(ONE, phase), percent=40)
    decision = decide(desired(want=want), stored(observed_task(ONE, "Starting")), {ONE: actual}, trusted=True)
    assert decision.tasks == (actual,)


@pytest.mark.parametrize("phase", PHASES)
def test_only_what_lives_is_stopped(phase: str) -> None:
    decision = decide(desired(want="stop"), None, {ONE: observed_task(ONE, phase)}, trusted=True)
    assert decision.stop == ((ONE,) if phase in ("Starting", "Running") else ())


def test_what_was_running_and_is_not_seen_is_lost() -> None:
    decision = decide(desired(), stored(observed_task(ONE, "Running")), {}, trusted=True)
    assert (decision.phase, decision.tasks[0].reason) == ("Failed", "Lost")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Cancelled"])
def test_an_end_that_was_reported_stays(phase: str) -> None:
    end = msgspec.structs.replace(observed_task(ONE, phase), exit_code=3)
    assert decide(desired(), stored(end), {}, trusted=False).tasks == (end,)


@pytest.mark.parametrize("before", [None, stored(observed_task(ONE, "Starting"))])
def test_a_stop_before_the_start_cancels(before: Observed | None) -> None:
    decision = decide(desired(want="stop"), before, {}, trusted=True)
    assert (decision.phase, decision.tasks[0].reason, decision.start) == ("Cancelled", "Cancelled", ())


def test_an_interrupted_start_of_a_pack_starts_only_the_rest() -> None:
    before = stored(observed_task(ONE, "Starting"), observed_task(TWO, "Starting"))
    decision = decide(desired(ONE, TWO), before, {ONE: observed_task(ONE, "Running")}, trusted=True)
    assert decision.start == (TWO,)
    assert decision.phase == "Running"


@pytest.mark.parametrize(
    ("phases", "whole"),
    [
        (["Starting", "Starting"], "Starting"),
        (["Starting", "Running"], "Running"),
        (["Starting", "Succeeded"], "Running"),
        (["Failed", "Running"], "Running"),
        (["Succeeded", "Succeeded"], "Succeeded"),
        (["Succeeded", "Cancelled"], "Cancelled"),
        (["Cancelled", "Failed"], "Failed"),
    ],
)
def test_the_phase_of_the_whole_follows_from_its_tasks(phases: list[str], whole: str) -> None:
    assert fold(phases) == whole


@pytest.mark.parametrize("told", [None, "Starting"])
def test_an_attempt_that_may_be_from_before_a_restore_is_never_started(told: str | None) -> None:
    last = stored(observed_task(ONE, told)) if told is not None else None
    decision = decide(desired(), last, {}, trusted=True, attempt_floor=1)
    assert (decision.start, decision.phase, decision.tasks[0].reason) == ((), "Failed", "Lost")
    assert decide(desired(), last, {}, trusted=True, attempt_floor=0).phase == "Starting"


def test_what_is_seen_of_such_an_attempt_is_told_as_it_is() -> None:
    decision = decide(desired(), None, {ONE: observed_task(ONE, "Succeeded")}, trusted=True, attempt_floor=1)
    assert decision.phase == "Succeeded"
