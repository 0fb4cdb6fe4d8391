"""ReceiveSlots: the number of requests on their way into a replica at a time.

gRPC keeps the received bytes of a message until the message is whole, and lets the sender send all of an awaited
message. Of a stream without a reader gRPC keeps one window of flow control (64 KiB, see `grpc_server`). So a replica
awaits few messages at a time, of each connection fewer still, and gives up an unfinished message after some time. Whole
messages, as nearly all are, never wait here.
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
# Beyond so many waiting requests, a request is refused.
MOST_IN_LINE = 1000
RECEIVE_SECONDS = 30.0


@dataclass(slots=True)
class _Sender:
    """`calls` of the connection want to receive; some of them do."""

    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_OF_A_CONNECTION))
    calls: int = 0


class ReceiveSlots:
    """The slots of a whole replica."""

    def __init__(self, seconds: float = RECEIVE_SECONDS) -> None:
        self._seconds = seconds
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._connections: dict[str, _Sender] = {}
        self._calls = 0

    async def message(self, read: Callable[[], Awaitable[M]], connection: str) -> M:
        """The next message of a stream of the connection.

        Invalid when the message does not come to its end in time, Unavailable when too many others wait.
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
            its = self._connections[connection] = _Sender()
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
