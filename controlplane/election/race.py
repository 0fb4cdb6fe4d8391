"""Waiting for something that loses its point when something else happens first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from controlplane.model.errors import Deposed

T = TypeVar("T")


async def unless(end: Awaitable[object], work: Coroutine[Any, Any, T]) -> T:
    """The work's result, or Deposed when `end` comes first; the work is then cancelled and has ended."""
    task = asyncio.ensure_future(work)
    ending = asyncio.ensure_future(end)
    try:
        await asyncio.wait({task, ending}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Deposed(str(ending.result()))
    finally:
        if ending is not end:
            ending.cancel()
        await cancel(task)


async def cancel(task: asyncio.Task[Any]) -> None:
    """Returns when the task has ended; what it ended with is the business of whoever waits for it."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
