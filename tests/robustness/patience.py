"""Waiting for what no event tells: another process's file, the far end of a link."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def until(look: Callable[[], T], seconds: float, what: str) -> T:
    """What was found, once it is something."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not (found := look()):
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)
    return found
