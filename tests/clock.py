"""A clock that a test moves by hand."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta


class ManualClock:
    """Stands still until `pass_seconds`; sleepers wake when their time has come, and not before."""

    def __init__(self, wall: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = wall
        self._passed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []

    def monotonic(self) -> float:
        return 1000.0 + self._passed

    def wall(self) -> datetime:
        return self._start + timedelta(seconds=self._passed)

    async def sleep(self, seconds: float) -> None:
        due = asyncio.Event()
        heapq.heappush(self._sleepers, (self._passed + seconds, id(due), due))
        await due.wait()

    def pass_seconds(self, seconds: float) -> None:
        self._passed += seconds
        while self._sleepers and self._sleepers[0][0] <= self._passed:
            heapq.heappop(self._sleepers)[2].set()
