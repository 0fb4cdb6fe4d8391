"""A TCP proxy of a test's own, to cut, hold and lose what two parts of the system say to each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes between its own address and the target's. Held bytes are kept and passed on when released."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target if "//" in target else f"//{target}")
        self._target = (parts.hostname or "127.0.0.1", parts.port or 0)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._up, self._down = asyncio.Event(), asyncio.Event()
        self.release()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def aim(self, target: str) -> None:
        """Where new connections go from now on."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))

    async def open(self) -> None:
        """Also after `refuse`, at the same address."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Closes everything: connections are reset, new ones refused."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.cut()

    async def cut(self) -> None:
        """Closes the connections that are there; new ones are taken."""
        tasks = set(self._connections)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def hold(self, *, up: bool = True, down: bool = True) -> None:
        """From now on nothing passes towards the target (up) or back from it (down); connections stay."""
        if up:
            self._up.clear()
        if down:
            self._down.clear()

    def release(self) -> None:
        self._up.set()
        self._down.set()

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
        target_reader, target_writer = await asyncio.open_connection(*self._target)
        ways = [
            asyncio.create_task(_pass(reader, target_writer, self._up)),
            asyncio.create_task(_pass(target_reader, writer, self._down)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            target_writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    while data := await reader.read(65536):
        await gate.wait()
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def proxied(target: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(target)
    await proxy.open()
    try:
        yield proxy
    finally:
        proxy.release()
        await proxy.refuse()
