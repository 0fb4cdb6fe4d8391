"""Waiting for what no event tells: another process's file, the far end of a link."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# For what must happen but is promised within no time: it measures nothing, it only ends the waiting.
PATIENCE_SECONDS = 60.0


async def until(look: Callable[[], T], what: str, *, seconds: float = PATIENCE_SECONDS) -> T:
    """What was found, once it is something."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not (found := look()):
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)
    return found
