"""Folders of attempts that nobody asks about any more, kept as tombstones for a while, then removed."""

from __future__ import annotations

import asyncio
import functools
import shutil
from collections import deque
from pathlib import Path

from controlplane.aio.clock import Clock

TOMBSTONE_SECONDS = 600.0


class Graveyard:
    """One timer for all of them, and none while there are none."""

    def __init__(self, clock: Clock, seconds: float = TOMBSTONE_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._graves: deque[tuple[float, Path]] = deque()

    def add(self, path: Path) -> None:
        if not self._graves:
            asyncio.get_running_loop().call_later(self._seconds, self._sweep)
        self._graves.append((self._clock.monotonic() + self._seconds, path))

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = self._clock.monotonic()
        while self._graves and self._graves[0][0] <= now:
            _, path = self._graves.popleft()
            loop.run_in_executor(None, functools.partial(shutil.rmtree, path, ignore_errors=True))
        if self._graves:
            loop.call_later(self._graves[0][0] - now, self._sweep)
