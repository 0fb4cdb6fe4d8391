"""States of tasks that take room only where something happened: the same as a bytearray to whoever asks."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from controlplane.cache.job_ledger import JobLedger
from controlplane.cache.task_states import SparseStates, untouched, where, writable
from controlplane.model.task import TaskEvent, TaskState

COUNT = 10_000
INDEX = st.integers(0, COUNT - 1)
STATE = st.integers(0, 9)
CHANGES = st.lists(st.tuples(INDEX, STATE) | st.tuples(STATE, STATE, STATE), max_size=30)


@given(CHANGES, INDEX)
def test_sparse_states_are_what_a_bytearray_would_be(changes: list[tuple[int, ...]], start: int) -> None:
    plain, sparse = bytearray(COUNT), SparseStates(COUNT)
    for change in changes:
        if len(change) == 2:
            plain[change[0]] = sparse[change[0]] = change[1]
        else:
            table = bytes(change[1] if before == change[0] else before for before in range(256))
            plain, sparse = plain.translate(table), sparse.translate(table)
    assert bytes(sparse) == plain
    assert len(sparse) == COUNT
    assert sparse[start] == plain[start]
    for state in range(10):
        assert sparse.find(state, start) == plain.find(state, start)
        assert list(where(sparse, state, start)) == list(where(plain, state, start))


def test_a_place_that_is_not_there_is_not_there() -> None:
    sparse = SparseStates(5000)
    for index in (-1, 5000):
        try:
            sparse[index] = 1
        except IndexError:
            continue
        raise AssertionError(index)


def test_untouched_states_of_small_jobs_are_shared_until_one_changes() -> None:
    first, second = untouched(100), untouched(100)
    assert first is second
    changed = writable(first)
    changed[5] = TaskState.PLACED
    assert bytes(second) == bytes(100)


def memory_of(counts: list[int], *, touched: int | None = None) -> int:
    tracemalloc.start()
    try:
        ledgers = [JobLedger(count) for count in counts]
        if touched is not None:
            for ledger in ledgers:
                ledger.place(touched, 1)
        assert len(ledgers) == len(counts)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_two_hundred_jobs_of_a_million_tasks_cost_as_little_as_jobs_of_one() -> None:
    assert memory_of([1_000_000] * 200) < 200 * 2000
    assert memory_of([1000] * 1000) < 1000 * 2000


def test_a_task_at_the_end_of_a_large_job_takes_the_room_of_its_surroundings_only() -> None:
    assert memory_of([1_000_000] * 200, touched=999_999) < 200 * 10_000


def test_the_tasks_of_a_large_job_are_taken_placed_and_ended_like_those_of_a_small_one() -> None:
    large, small = JobLedger(9000), JobLedger(900)
    for job in (large, small):
        assert job.take(3, "") == [(0, 1), (1, 1), (2, 1)]
        for index in (0, 1, 2):
            job.place(index, 1)
        assert job.move(1, TaskEvent.RETRY)
        assert job.take(2, "") == [(1, 2), (3, 1)]
        job.end_waiting(TaskEvent.CALL_OFF)
        assert job.counts[TaskState.NEW] == job.counts[TaskState.WAITING_RETRY] == 0
        assert job.counts[TaskState.PLACED] == 2
        assert job.counts[TaskState.CALLED_OFF] == job.count - 2
        assert job.state[job.count - 1] == TaskState.CALLED_OFF
        assert job.take(5, "") == []
