"""Keeps the logs of `controlplane up` small: DIR/logs/NAME.log, and what it held before as NAME.log.1."""

from __future__ import annotations

import asyncio
from pathlib import Path

from controlplane.aio.clock import Clock
from controlplane.aio.trimming import trim

MOST_LOG_BYTES = 16 << 20
EVERY_SECONDS = 60.0


async def keep_logs_small(logs: Path, clock: Clock) -> None:
    """Until it is cancelled. All that write there append."""
    while True:
        await asyncio.to_thread(trim_all, logs)
        await clock.sleep(EVERY_SECONDS)


def trim_all(logs: Path) -> None:
    for path in logs.glob("*.log"):
        trim(path, MOST_LOG_BYTES)
