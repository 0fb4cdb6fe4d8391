"""The keyed queue: once each, one worker at a time, later when asked."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.aio.work_queue import WorkQueue


async def nothing_to_take(queue: WorkQueue[str]) -> bool:
    taking = asyncio.ensure_future(queue.take())
    for _ in range(3):
        await asyncio.sleep(0)
    if taking.done():
        return False
    taking.cancel()
    return True


async def test_a_key_that_is_added_often_is_handed_out_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "a", "b", "a"):
        queue.add(key)
    assert [await queue.take(), await queue.take()] == ["a", "b"]
    assert await nothing_to_take(queue)


async def test_a_key_in_work_is_not_handed_out_a_second_time_until_it_is_done() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.take()
    queue.add("a")
    queue.add("a")
    assert await nothing_to_take(queue)
    queue.done("a")
    assert await queue.take() == "a"
    queue.done("a")
    assert await nothing_to_take(queue)


async def test_a_key_comes_back_when_its_time_has_come() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_later("a", 0.01)
    assert await nothing_to_take(queue)
    assert await asyncio.wait_for(queue.take(), 5) == "a"


async def test_of_several_times_the_earliest_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_later("a", 3600)
    queue.add_later("a", 0.01)
    queue.add_later("a", 7200)
    assert await asyncio.wait_for(queue.take(), 5) == "a"
    queue.done("a")
    assert await nothing_to_take(queue)


async def test_a_key_that_is_added_now_does_not_come_back_later_too() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_later("a", 0.01)
    queue.add("a")
    assert await queue.take() == "a"
    queue.done("a")
    queue.add_later("b", 0.02)
    assert await asyncio.wait_for(queue.take(), 5) == "b"


async def test_a_cancelled_worker_takes_no_key_with_it() -> None:
    queue: WorkQueue[str] = WorkQueue()
    taking = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    queue.add("a")
    assert await asyncio.wait_for(queue.take(), 5) == "a"


async def test_times_that_no_longer_count_are_forgotten_before_they_come() -> None:
    queue: WorkQueue[int] = WorkQueue()
    for key in range(5000):
        queue.add_later(key, 3600.0)
        queue.add(key)
    assert len(queue._line) < 2000
    queue.add_later(1, 0.0)
    queue.close()
