"""The ledger of a job runs on the table of tasks, in small jobs and in large ones."""

from __future__ import annotations

import itertools
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.cache.job_ledger import JobLedger
from controlplane.cache.ledger import OrderLedger
from controlplane.model.order import Resolved
from controlplane.model.task import PHASE_OF, TABLE, TaskEvent, TaskState
from controlplane.store import codec
from tests.builders import an_order

PAIRS = list(itertools.product(TaskState, TaskEvent))
SIZES = (3, 5000)


def in_state(state: TaskState, count: int) -> JobLedger:
    """A ledger whose second task has come to the state, along the table alone."""
    ways: dict[TaskState, tuple[TaskEvent, ...]] = {TaskState.NEW: ()}
    while state not in ways:
        ways |= {
            after: (*ways[before], event)
            for (before, event), after in TABLE.items()
            if before in ways and after not in ways
        }
    ledger = JobLedger(count)
    for event in ways[state]:
        assert ledger.move(1, event)
    assert ledger.state[1] == state
    return ledger


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_a_ledger_moves_a_task_along_the_table_and_ignores_the_rest(
    state: TaskState, event: TaskEvent, count: int
) -> None:
    ledger = in_state(state, count)
    after = TABLE.get((state, event))
    assert ledger.move(1, event) == (after or 0)
    now = state if after is None else after
    assert ledger.state[1] == now
    assert Counter(dict(enumerate(ledger.counts))) == Counter({now: 1}) + Counter({TaskState.NEW: count - 1})


@pytest.mark.parametrize("index", [-1, 3])
def test_an_event_of_a_task_that_the_job_does_not_have_is_ignored(index: int) -> None:
    ledger = JobLedger(3)
    assert not any(ledger.move(index, event) for event in TaskEvent)
    assert (bytes(ledger.state), ledger.counts[TaskState.NEW]) == (bytes(3), 3)


MOVES = st.lists(st.tuples(st.sampled_from(TaskEvent), st.integers(0, 2)), max_size=20)


@pytest.mark.parametrize("count", SIZES)
@given(moves=MOVES, of_all=st.sampled_from([TaskEvent.CALL_OFF, TaskEvent.EXPIRE]))
def test_any_course_of_events_leaves_a_ledger_where_the_table_leads(
    count: int, moves: list[tuple[TaskEvent, int]], of_all: TaskEvent
) -> None:
    ledger, states = JobLedger(count), [TaskState.NEW] * count
    for event, index in moves:
        ledger.move(index, event)
        states[index] = TABLE.get((states[index], event), states[index])
    assert list(ledger.state) == states
    ledger.end_waiting(of_all)
    states = [TABLE.get((state, of_all), state) for state in states]
    assert list(ledger.state) == states
    assert [*ledger.counts] == [states.count(state) for state in TaskState]


@given(placed=st.sampled_from([True, False]), decision=st.sampled_from(["retry", "hold", None]))
def test_a_task_that_is_called_off_keeps_the_number_of_its_last_attempt(placed: bool, decision: str | None) -> None:
    for index in (1, None):
        ledger = JobLedger(3)
        if placed:
            ledger.place(1, 1)
            ledger.place(1, 2)
        if decision is not None:
            ledger.move(1, TaskEvent(decision))
        before = ledger.attempt(1)
        ledger.end_waiting(TaskEvent.CALL_OFF, index)
        assert ledger.attempt(1) == before


@given(st.lists(st.tuples(st.sampled_from(["job-0", "job-1"]), st.integers(0, 2), st.sampled_from(TaskEvent))))
def test_the_counts_of_an_order_are_the_phases_of_its_tasks(moves: list[tuple[str, int, TaskEvent]]) -> None:
    order = an_order().of(3).jobs(cpu=1).of(3).jobs(cpu=1).build()
    ledger = OrderLedger.open(order, 2, codec.decode(bytes(order.resolved), Resolved))
    for job, index, event in moves:
        ledger.jobs[job].move(index, event)
    phases = Counter(PHASE_OF[state].value.lower() for job in ledger.jobs.values() for state in job.state)
    assert {name: count for name, count in msgspec.structs.asdict(ledger.counts()).items() if count} == phases
    ended = phases["succeeded"] + phases["failed"] + phases["cancelled"]
    assert ledger.percent() == 100 * ended // 6


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("state", TaskState)
def test_a_placement_moves_a_task_along_the_table_too(state: TaskState, count: int) -> None:
    ledger = in_state(state, count)
    ledger.place(1, ledger.attempt(1) + 1)
    now = TABLE.get((state, TaskEvent.PLACE), state)
    assert ledger.state[1] == now
    assert Counter(dict(enumerate(ledger.counts))) == Counter({now: 1}) + Counter({TaskState.NEW: count - 1})
