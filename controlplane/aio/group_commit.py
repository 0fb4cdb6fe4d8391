"""Group commit: writes of many callers travel together.

A lone write goes at once. Under load (several writes within the last `gather_seconds`) writes gather for
`gather_seconds`, or until they are many, since few large groups cost less than many small groups. At most `in_flight`
groups are under way at a time. `split` decides which writes form a group.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_LOOK_AHEAD = 128
# `_LOAD` writes within the gathering time count as load; `_MANY` waiting writes are worth a group at once.
_LOAD = 5
_MANY = 16


class _Caller(Generic[R]):
    """A caller that waits for its items: a single future for all of them, done when the last item has its result."""

    __slots__ = ("done", "left", "results")

    def __init__(self, count: int) -> None:
        self.results: list[R | Exception | None] = [None] * count
        self.left = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def land(self, at: int, result: R | Exception) -> None:
        self.results[at] = result
        self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(None)


class GroupCommit(Generic[T, R]):
    def __init__(
        self,
        flush: Callable[[list[T]], Awaitable[Sequence[R]]],
        split: Callable[[Sequence[T]], int],
        *,
        gather_seconds: float = 0.02,
        in_flight: int = 2,
        full: int = 100,
    ) -> None:
        """`flush` commits a group and returns a result for each item; `split` says how many of the given waiting items,
        from the front, make the next group (at least 1)."""
        self._flush = flush
        self._split = split
        self._gather_seconds = gather_seconds
        self._in_flight = in_flight
        self._full = full
        self._waiting: deque[tuple[T, _Caller[R], int]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._since = 0.0
        self._came = self._came_before = 0

    async def submit(self, item: T) -> R:
        """The item's result, or the error of its group. Cancelling the caller does not recall the item."""
        (result,) = await self.submit_all([item])
        if isinstance(result, Exception):
            raise result
        return result

    async def submit_all(self, items: Sequence[T]) -> list[R | Exception]:
        """The result of each item, or the error of its group; the items need not travel in the same group."""
        if not items:
            return []
        caller: _Caller[R] = _Caller(len(items))
        self._waiting.extend((item, caller, at) for at, item in enumerate(items))
        loop = asyncio.get_running_loop()
        self._note(loop.time(), len(items))
        if self._soon is None and self._enough():
            # Callers that are ready in the same turn of the loop join this group.
            self._soon = loop.call_soon(self._send)
        elif self._timer is None:
            self._timer = loop.call_later(self._gather_seconds, self._send)
        await caller.done
        return caller.results  # type: ignore[return-value]  # all have landed

    def _note(self, now: float, count: int) -> None:
        """Counts writes in windows of the gathering time; the counts of the current and the last window are kept."""
        if now - self._since >= self._gather_seconds:
            recent = now - self._since < 2 * self._gather_seconds
            self._came_before = self._came if recent else 0
            self._came, self._since = 0, now
        self._came += count

    def _enough(self) -> bool:
        count = len(self._waiting)
        if self._under_way:
            return count >= self._full
        return count >= _MANY or self._came + self._came_before < _LOAD

    async def drain(self) -> None:
        """Waits until all items submitted so far have their results."""
        while self._waiting or self._under_way:
            self._send()
            if self._under_way:
                await asyncio.wait(set(self._under_way))

    def _send(self) -> None:
        for scheduled in (self._timer, self._soon):
            if scheduled is not None:
                scheduled.cancel()
        self._timer = self._soon = None
        while self._waiting and len(self._under_way) < self._in_flight:
            count = self._split([item for item, _, _ in itertools.islice(self._waiting, _LOOK_AHEAD)])
            group = [self._waiting.popleft() for _ in range(count)]
            task = asyncio.get_running_loop().create_task(self._commit(group))
            self._under_way.add(task)
            task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        # Writes that still gather have a timer. Writes whose time was up while all groups were in flight go now.
        if self._waiting and (self._timer is None or self._enough()):
            self._send()

    async def _commit(self, group: list[tuple[T, _Caller[R], int]]) -> None:
        try:
            results = await self._flush([item for item, _, _ in group])
            if len(results) != len(group):
                raise ValueError(f"a group of {len(group)} got {len(results)} results")
        except Exception as error:  # noqa: BLE001 - the group's fate is every member's fate
            for _, caller, at in group:
                caller.land(at, error)
        except BaseException:
            for _, caller, _ in group:
                caller.done.cancel()
            raise
        else:
            for (_, caller, at), result in zip(group, results, strict=True):
                caller.land(at, result)
