"""Group commit: alone at once, together under load, each with its own fate."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from controlplane.aio.group_commit import GroupCommit
from controlplane.model.errors import Unavailable


class Gate:
    """A place to commit to that holds every group until the test lets it through."""

    def __init__(self, *, most: int = 100, in_flight: int = 1, gather_seconds: float = 3600) -> None:
        self.groups: list[list[str]] = []
        self.arrived: asyncio.Queue[list[str]] = asyncio.Queue()
        self._answers: list[asyncio.Future[Sequence[str]]] = []
        self._most = most
        self.commit: GroupCommit[str, str] = GroupCommit(
            self._flush, self._split, gather_seconds=gather_seconds, in_flight=in_flight
        )

    def _split(self, items: Sequence[str]) -> int:
        return min(len(items), self._most)

    async def _flush(self, items: list[str]) -> Sequence[str]:
        self.groups.append(items)
        self.arrived.put_nowait(items)
        self._answers.append(asyncio.get_running_loop().create_future())
        return await self._answers[-1]

    def answer(self, group: int, results: Sequence[str] | None = None) -> None:
        made = [f"{item} done" for item in self.groups[group]]
        self._answers[group].set_result(made if results is None else results)

    def fail(self, group: int, error: BaseException) -> None:
        self._answers[group].set_exception(error)

    def submit(self, *items: str) -> list[asyncio.Task[str]]:
        return [asyncio.ensure_future(self.commit.submit(item)) for item in items]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_lone_write_goes_at_once() -> None:
    gate = Gate()
    (write,) = gate.submit("a")
    await settle()
    assert gate.groups == [["a"]]
    gate.answer(0)
    assert await write == "a done"


async def test_callers_that_are_ready_together_travel_together() -> None:
    gate = Gate()
    writes = gate.submit("a", "b", "c")
    await settle()
    assert gate.groups == [["a", "b", "c"]]
    gate.answer(0)
    assert await asyncio.gather(*writes) == ["a done", "b done", "c done"]


async def test_what_comes_while_a_group_is_under_way_gathers_and_follows_in_order() -> None:
    gate = Gate()
    first = gate.submit("a")
    await settle()
    others = gate.submit("b", "c")
    await settle()
    later = gate.submit("d")
    await settle()
    assert gate.groups == [["a"]]
    gate.answer(0)
    await settle()
    assert gate.groups == [["a"], ["b", "c", "d"]]
    gate.answer(1)
    assert await asyncio.gather(*first, *others, *later) == ["a done", "b done", "c done", "d done"]


async def test_gathering_ends_after_its_time_when_another_group_may_be_under_way() -> None:
    gate = Gate(in_flight=2, gather_seconds=0.01)
    writes = gate.submit("a")
    assert await gate.arrived.get() == ["a"]
    writes += gate.submit("b", "c")
    assert await asyncio.wait_for(gate.arrived.get(), 5) == ["b", "c"]
    gate.answer(1)
    gate.answer(0)
    assert await asyncio.gather(*writes) == ["a done", "b done", "c done"]


async def test_no_more_groups_are_under_way_than_allowed() -> None:
    gate = Gate(most=1, in_flight=2)
    writes = gate.submit("a", "b", "c", "d")
    await settle()
    assert gate.groups == [["a"], ["b"]]
    gate.answer(1)
    await settle()
    assert gate.groups == [["a"], ["b"], ["c"]]
    gate.answer(0)
    await settle()
    gate.answer(2)
    gate.answer(3)
    assert await asyncio.gather(*writes) == ["a done", "b done", "c done", "d done"]


async def test_the_error_of_a_group_reaches_its_members_and_nobody_else() -> None:
    gate = Gate(most=2, in_flight=2)
    writes = gate.submit("a", "b", "c")
    await settle()
    gate.fail(0, Unavailable("gone"))
    gate.answer(1)
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable, Unavailable, str]


async def test_a_group_that_gets_fewer_answers_than_it_has_members_fails_and_nobody_waits_for_ever() -> None:
    gate = Gate()
    writes = gate.submit("a", "b")
    await settle()
    gate.answer(0, ["only one"])
    results = await asyncio.wait_for(asyncio.gather(*writes, return_exceptions=True), 5)
    assert all(isinstance(result, ValueError) for result in results)


async def test_a_caller_that_gives_up_harms_nobody_and_recalls_nothing() -> None:
    gate = Gate()
    first, second = gate.submit("a", "b")
    await settle()
    first.cancel()
    await settle()
    gate.answer(0)
    assert await second == "b done"
    assert gate.groups == [["a", "b"]]
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_draining_returns_when_everything_submitted_has_its_result() -> None:
    gate = Gate(most=1)
    writes = gate.submit("a", "b")
    await settle()
    draining = asyncio.ensure_future(gate.commit.drain())
    await settle()
    assert not draining.done()
    gate.answer(0)
    await settle()
    assert not draining.done()
    gate.answer(1)
    await asyncio.wait_for(draining, 5)
    assert all(write.done() for write in writes)


async def test_many_items_of_one_caller_get_their_own_results_whichever_group_took_them() -> None:
    gate = Gate(most=2, in_flight=2)
    writing = asyncio.ensure_future(gate.commit.submit_all(["a", "b", "c"]))
    await settle()
    assert gate.groups == [["a", "b"], ["c"]]
    gate.answer(1)
    await settle()
    assert not writing.done()
    gate.fail(0, Unavailable("gone"))
    first, second, third = await writing
    assert isinstance(first, Unavailable)
    assert isinstance(second, Unavailable)
    assert third == "c done"


async def test_nothing_to_write_is_done_at_once() -> None:
    gate = Gate()
    assert await gate.commit.submit_all([]) == []
    assert gate.groups == []
