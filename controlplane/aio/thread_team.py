"""ThreadTeam: threads of its own for one kind of work that takes long, so that the event loop stays responsive.

The default executor is left to name resolution and files: a flood of one kind of work delays nothing but itself.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class ThreadTeam:
    """At most `threads` calls run at a time; the others wait for their turn. Threads are made when they are needed."""

    def __init__(self, name: str, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Cancelled, it leaves the call running in its thread; its result is dropped."""
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: context.run(work, *args, **kwargs))


# What people ask: explain, plan, lists of many ends, the world of a past cycle, the hash of the cache.
QUESTIONS = ThreadTeam("question", 2)
# What a leader decides.
DECISIONS = ThreadTeam("decision", 1)
