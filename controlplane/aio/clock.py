"""The clock: the only module that reads time and chance. All other code gets a Clock passed in.

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


class BootClock(SystemClock):
    """A clock whose `monotonic` also counts the time in which the machine was suspended.

    A lease of another machine runs out during a suspend; a deadline on a BootClock runs out too.
    """

    def monotonic(self) -> float:
        try:
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        except (AttributeError, OSError):
            return time.monotonic()


def suspended_seconds() -> float:
    """How far CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC, to the millisecond; 0 on a system without CLOCK_BOOTTIME."""
    try:
        return round(time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic(), 3)
    except (AttributeError, OSError):
        return 0.0


def wall_milliseconds() -> int:
    return time.time_ns() // 1_000_000


def chance(size: int) -> bytes:
    return os.urandom(size)
