"""Threads for large requests: what reads, converts and admits them does not stop the loop.

A call is marked as large once, when its request arrives, and everything it does with `Offload.run` then happens in one
of few threads of this module's own. Other calls pay nothing: their work is done at once, where they are. What is run
here is pure, or touches only what is safe to touch from a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import TypeVar

from controlplane.model.errors import Unavailable

R = TypeVar("R")

LARGE_BYTES = 256 << 10
LARGE_FIELDS = 30_000
_THREADS = 2
_MOST_WAITING = 32

_large: ContextVar[bool] = ContextVar("large request", default=False)


class Offload:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="large-request")
        self._lock = threading.Lock()
        self._waiting = 0

    def mark(self) -> None:
        """The call that is being served has a large request."""
        _large.set(True)

    async def run(self, work: Callable[[], R]) -> R:
        """What `work` returns or raises. Unavailable, before it is begun, when too many large requests wait."""
        if not _large.get():
            return work()
        with self._lock:
            if self._waiting >= _MOST_WAITING:
                raise Unavailable(f"{_MOST_WAITING} large requests are being read, the most at a time; try again")
            self._waiting += 1
        future = self._threads.submit(work)
        future.add_done_callback(self._done)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _done(self, _future: Future[R]) -> None:
        # Not when its caller left: the thread is busy until then.
        with self._lock:
            self._waiting -= 1
