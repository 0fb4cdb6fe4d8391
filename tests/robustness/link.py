"""A TCP link between two parts of the system that a test can cut, hold back and listen to.

It lives on the test's own event loop. What is held is kept and passed on when released, as a network that heals
delivers what was sent again and again meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

_CHUNK = 65536
_MOST_HELD = 1 << 20


class Way:
    """One direction of the link, over all of its connections: up is towards the target, down is back from it."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.held = bytearray()
        self.passed = bytearray()
        self.listening = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until its end; while the way is closed it goes on reading, so that `held` shows what is on its way."""
        waiting = bytearray()
        while True:
            data = await reader.read(_CHUNK)
            if not self.open.is_set():
                self.held += data
            waiting += data
            if data and not self.open.is_set() and len(waiting) < _MOST_HELD:
                continue
            await self.open.wait()
            if self.listening:
                self.passed += waiting
            writer.write(bytes(waiting))
            waiting.clear()
            await writer.drain()
            if not data:
                return


class Link:
    """Takes connections at `address` and joins each to one to the target."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target if "//" in target else f"//{target}")
        self._target = (parts.hostname or "", parts.port or 0)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.up, self.down = Way(), Way()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    async def listen(self) -> None:
        """Also after `refuse`, at the same address."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Resets every connection and refuses new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.reset()

    async def reset(self) -> None:
        tasks = set(self._connections)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def hold(self, *ways: Way) -> None:
        """From now on nothing passes these ways, or any; connections stay, and new ones are taken."""
        for way in ways or (self.up, self.down):
            way.open.clear()

    def release(self) -> None:
        for way in (self.up, self.down):
            way.open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._join(reader, writer)
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        ways = [
            asyncio.create_task(self.up.carry(reader, far_writer)),
            asyncio.create_task(self.down.carry(far_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.transport.abort()


@asynccontextmanager
async def linked(target: str) -> AsyncIterator[Link]:
    link = Link(target)
    await link.listen()
    try:
        yield link
    finally:
        link.release()
        await link.refuse()
