"""Receiving: how many requests may be on their way into a replica at a time.

gRPC keeps what has come of a message until the message is whole, and lets its sender send all of a message that
somebody waits for. Of a stream that nobody reads from it keeps one window of flow control (64 KiB, see `server`). So
a replica reads few messages at a time, of each connection fewer still, and gives a message up that does not come to its
end. Messages that come whole, as nearly all do, never wait here for anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from controlplane.model.errors import Invalid, Unavailable

M = TypeVar("M")

MOST_AT_ONCE = 128
MOST_OF_A_CONNECTION = 8
# Beyond so many that wait for their turn, a request is refused.
MOST_IN_LINE = 1000
RECEIVE_SECONDS = 30.0


@dataclass(slots=True)
class _Connection:
    """`calls` of it want to receive; some of them do."""

    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_OF_A_CONNECTION))
    calls: int = 0


class Receiving:
    """Of a whole replica."""

    def __init__(self, seconds: float = RECEIVE_SECONDS) -> None:
        self._seconds = seconds
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._connections: dict[str, _Connection] = {}
        self._calls = 0

    async def message(self, read: Callable[[], Awaitable[M]], connection: str) -> M:
        """What `read` gives for a stream of that connection.

        Invalid when a message does not come to its end in time, Unavailable when too many others wait.
        """
        async with self._turn(connection):
            try:
                async with asyncio.timeout(self._seconds):
                    return await read()
            except TimeoutError:
                raise Invalid("request", f"must come within {self._seconds:g} s") from None

    @asynccontextmanager
    async def _turn(self, connection: str) -> AsyncIterator[None]:
        if self._calls >= MOST_AT_ONCE + MOST_IN_LINE:
            raise Unavailable(f"{self._calls} requests are on their way; ask another replica")
        its = self._connections.get(connection)
        if its is None:
            its = self._connections[connection] = _Connection()
        its.calls += 1
        self._calls += 1
        try:
            async with its.turns, self._turns:
                yield
        finally:
            self._calls -= 1
            its.calls -= 1
            if not its.calls:
                del self._connections[connection]
