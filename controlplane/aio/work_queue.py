"""A queue of keys: each waits at most once, is handed out to one worker at a time, and may come back later."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    def __init__(self) -> None:
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._waiting: set[K] = set()
        self._held: set[K] = set()
        self._again: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def add(self, key: K) -> None:
        """The key is handed out once after this call, however often it is added before."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._held:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_later(self, key: K, seconds: float) -> None:
        """Added after that time, unless it is added earlier; of several times the earliest counts."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def take(self) -> K:
        key = await self._ready.get()
        self._waiting.discard(key)
        self._held.add(key)
        return key

    def done(self, key: K) -> None:
        """The worker gives the key back; what was added meanwhile is handed out again."""
        self._held.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
