"""The one place that reads time and chance. Everything else gets a Clock passed in.

Deadlines run on `monotonic`; `wall` only stamps records for people.
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float: ...

    def wall(self) -> datetime: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def wall_milliseconds() -> int:
    return time.time_ns() // 1_000_000


def chance(size: int) -> bytes:
    return os.urandom(size)
