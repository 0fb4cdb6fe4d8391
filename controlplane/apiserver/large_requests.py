"""Large requests: their reading, conversion and admission run in threads, so the event loop is not held up.

A call is marked as large once, when its request arrives; the work passed to `run` then happens in a thread. Work of
other calls is done at once. Work passed to `run` is pure, or touches only state which is safe to touch from a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from controlplane.aio.thread_team import TeamBusy, ThreadTeam
from controlplane.model.errors import Unavailable

R = TypeVar("R")

LARGE_BYTES = 256 << 10
LARGE_FIELDS = 30_000
_MOST_AT_ONCE = 32

_team = ThreadTeam("large-request", 2, most_calls=_MOST_AT_ONCE)
_large: ContextVar[bool] = ContextVar("large request", default=False)


def mark() -> None:
    """The call being served has a large request."""
    _large.set(True)


async def run(work: Callable[[], R]) -> R:
    """The result of `work`. Unavailable, before the work begins, when too many large requests wait."""
    if not _large.get():
        return work()
    try:
        return await _team.run(work)
    except TeamBusy:
        raise Unavailable(f"{_MOST_AT_ONCE} large requests are being read, the most at a time; try again") from None
