"""ThreadTeam: separate threads for each kind of long work, so that the event loop stays responsive.

The default executor is left to name resolution and files: a flood of work of some kind delays only the same kind.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class TeamBusy(Exception):
    """The team already has its maximum of calls. The call was not begun."""


class ThreadTeam:
    """At most `threads` calls run at a time and others wait for their turn; at most `most_calls` run and wait together.

    Threads are started when needed.
    """

    def __init__(self, name: str, threads: int, *, most_calls: int | None = None) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most_calls = most_calls
        self._calls = 0
        self._lock = threading.Lock()

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the work in a thread. After a cancellation the thread goes on, and the result of the work is dropped."""
        with self._lock:
            if self._most_calls is not None and self._calls >= self._most_calls:
                raise TeamBusy
            self._calls += 1
        context = contextvars.copy_context()
        future = self._executor.submit(lambda: context.run(work, *args, **kwargs))
        # The call counts until its thread is done, also when the caller was cancelled earlier.
        future.add_done_callback(self._done)
        return await asyncio.wrap_future(future)

    def _done(self, _future: Future[R]) -> None:
        with self._lock:
            self._calls -= 1


# Questions of people: explain, plan, lists of many ends, the world of a past cycle, the hash of the cache.
QUESTIONS = ThreadTeam("question", 2)
# Decisions of a leader.
DECISIONS = ThreadTeam("decision", 1)
