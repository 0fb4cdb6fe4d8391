"""The table of tasks: every pair of state and event is walked."""

from __future__ import annotations

import itertools

import pytest

from controlplane.model import failure, task
from controlplane.model.task import (
    ENDED,
    FINAL_TASK,
    NEXT,
    OPEN,
    OVER,
    PHASE_OF,
    TABLE,
    WAITING,
    AttemptPhase,
    TaskEvent,
    TaskPhase,
    TaskState,
)

# Written a second time, and by state: the states that each state may change to, and the events that do it.
COURSE = {
    "NEW": "place:PLACED done:SUCCEEDED ignore:SUCCEEDED fail:FAILED fail_order:FAILED cancel:CANCELLED "
    "retry:WAITING_RETRY move:WAITING_RETRY hold:HELD send:WAITING_RETRY call_off:CALLED_OFF expire:EXPIRED",
    "PLACED": "place:PLACED vanish:ORPHANED done:SUCCEEDED ignore:SUCCEEDED fail:FAILED fail_order:FAILED "
    "cancel:CANCELLED retry:WAITING_RETRY move:WAITING_RETRY hold:HELD",
    "WAITING_RETRY": "place:PLACED done:SUCCEEDED ignore:SUCCEEDED fail:FAILED fail_order:FAILED cancel:CANCELLED "
    "retry:WAITING_RETRY move:WAITING_RETRY hold:HELD send:WAITING_RETRY call_off:CALLED_OFF expire:EXPIRED",
    "HELD": "place:PLACED done:SUCCEEDED ignore:SUCCEEDED fail:FAILED fail_order:FAILED cancel:CANCELLED "
    "retry:WAITING_RETRY move:WAITING_RETRY hold:HELD release:WAITING_RETRY call_off:CALLED_OFF expire:EXPIRED",
    "ORPHANED": "place:PLACED done:SUCCEEDED ignore:SUCCEEDED fail:FAILED fail_order:FAILED cancel:CANCELLED "
    "retry:WAITING_RETRY move:WAITING_RETRY hold:HELD",
    "CALLED_OFF": "place:PLACED done:SUCCEEDED ignore:SUCCEEDED fail:FAILED fail_order:FAILED cancel:CANCELLED "
    "retry:WAITING_RETRY move:WAITING_RETRY hold:HELD",
    "EXPIRED": "place:PLACED done:SUCCEEDED ignore:SUCCEEDED fail:FAILED fail_order:FAILED cancel:CANCELLED "
    "retry:WAITING_RETRY move:WAITING_RETRY hold:HELD",
}
PAIRS = list(itertools.product(TaskState, TaskEvent))


def expected(state: TaskState, event: TaskEvent) -> TaskState | None:
    moves = dict(move.split(":") for move in COURSE.get(state.name, "").split())
    return TaskState[moves[event]] if event in moves else None


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_every_event_has_in_every_state_the_effect_that_is_written_down(state: TaskState, event: TaskEvent) -> None:
    assert TABLE.get((state, event)) == expected(state, event)


def test_exactly_the_tasks_that_are_over_have_no_way_out() -> None:
    assert {state for state, _ in TABLE} == OPEN == set(TaskState) - OVER
    assert {state for state, event in TABLE if event is TaskEvent.CALL_OFF} == WAITING


def test_no_event_leads_back_to_new_so_that_0_can_mean_that_nothing_changes() -> None:
    assert not TaskState.NEW
    assert TaskState.NEW not in TABLE.values()
    assert {len(column) for column in NEXT.values()} == {len(TaskState)} == {max(TaskState) + 1}


def test_every_state_can_be_reached_and_every_event_is_of_use() -> None:
    assert {TaskState.NEW, *TABLE.values()} == set(TaskState)
    assert {event for _, event in TABLE} == set(TaskEvent) == set(NEXT)


def test_every_state_is_shown_as_a_phase_and_running_is_told_by_reports_alone() -> None:
    assert set(PHASE_OF) == set(TaskState)
    assert set(PHASE_OF.values()) == set(TaskPhase) - {TaskPhase.RUNNING}
    assert {PHASE_OF[state] for state in OVER} == FINAL_TASK
    assert {str(phase) for phase in FINAL_TASK} == {str(phase) for phase in ENDED}


@pytest.mark.parametrize("word", [*failure.ACTIONS, "done", "cancel", "move"])
def test_every_decision_is_an_event_that_ends_a_placement(word: str) -> None:
    assert task.decision_of(word) == word
    assert task.phase_after(word) == PHASE_OF[TABLE[TaskState.PLACED, TaskEvent(word)]]


@pytest.mark.parametrize("word", ["", "place", "vanish", "release", "send", "call_off", "expire", "dance"])
def test_a_word_on_record_that_is_no_decision_counts_as_fail(word: str) -> None:
    assert task.decision_of(word) is TaskEvent.FAIL
    assert task.phase_after(word) == "Failed"


@pytest.mark.parametrize("before", AttemptPhase)
@pytest.mark.parametrize("after", AttemptPhase)
def test_reports_repeat_a_phase_or_go_on_and_an_end_stays_the_same(before: AttemptPhase, after: AttemptPhase) -> None:
    rank = {"Starting": 0, "Running": 1, "Succeeded": 2, "Failed": 2, "Cancelled": 2}
    assert task.may_report(before, after) == (before == after or rank[before] < rank[after])


def test_after_a_phase_that_nobody_knows_any_phase_may_be_reported() -> None:
    assert all(task.may_report("Dancing", after) for after in AttemptPhase)
