"""A queue of keys: each key waits at most once, is handed out to a single worker at a time, and may come back later."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Hashable
from typing import Generic, TypeVar

_MANY = 1000
K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    def __init__(self) -> None:
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._waiting: set[K] = set()
        self._held: set[K] = set()
        self._again: set[K] = set()
        # Keys that come back later: `_due` holds the time of each key, `_line` is a heap by time that also holds
        # outdated entries. A single timer serves all keys, since there may be hundreds of thousands.
        self._due: dict[K, float] = {}
        self._line: list[tuple[float, int, K]] = []
        self._tie = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, key: K) -> None:
        """The key is handed out once after this call, however often it is added before."""
        self._due.pop(key, None)
        if key in self._held:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_later(self, key: K, seconds: float) -> None:
        """Adds the key after the given seconds, unless added earlier; of several times the earliest counts."""
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        if self._due.get(key, when + 1) <= when:
            return
        self._due[key] = when
        if len(self._line) > 2 * len(self._due) + _MANY:
            # Outdated entries may be due in hours only, and so are removed here.
            self._line = [entry for entry in self._line if self._counts(entry)]
            heapq.heapify(self._line)
        heapq.heappush(self._line, (when, next(self._tie), key))
        self._wake_by(when)

    def _wake_by(self, when: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._line and (self._line[0][0] <= now or not self._counts(self._line[0])):
            entry = heapq.heappop(self._line)
            if self._counts(entry):
                self.add(entry[2])
        if self._line:
            self._wake_by(self._line[0][0])

    def _counts(self, entry: tuple[float, int, K]) -> bool:
        return self._due.get(entry[2]) == entry[0]

    async def take(self) -> K:
        key = await self._ready.get()
        self._waiting.discard(key)
        self._held.add(key)
        return key

    def done(self, key: K) -> None:
        """Takes the key back from the worker; a key that was added meanwhile is handed out again."""
        self._held.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due.clear()
        self._line.clear()
