"""Work that loses its point when a term or a lease ends first, and tasks that are cancelled and waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from controlplane.model.errors import Deposed

T = TypeVar("T")


async def or_deposed(end: Awaitable[object], work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, or Deposed when `end` comes first; the work is then cancelled and has ended."""
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
    """Cancels the task and returns when the task has ended; a result or an error of the task is ignored."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
