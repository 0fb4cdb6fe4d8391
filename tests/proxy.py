"""A TCP proxy of a test's own, to cut, hold and lose what two parts of the system say to each other."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes between its own address and the target's. Held bytes are kept and passed on when released."""

    def __init__(self, target: str) -> None:
        self._target = ("", 0)
        self.aim(target)
        self._port = 0
        self._listener: socket.socket | None = None
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
        parts = urlsplit(target if "//" in target else f"//{target}")
        self._target = (parts.hostname or "127.0.0.1", parts.port or 0)

    async def open(self) -> None:
        """Also after `refuse`, at the same address."""
        self._listener = socket.create_server(("127.0.0.1", self._port), backlog=128)
        self._listener.setblocking(False)
        self._port = self._listener.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    async def refuse(self) -> None:
        """Closes everything: connections end, new ones are refused."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        await self.cut()

    async def cut(self) -> None:
        """Closes the connections that are there; new ones are taken."""
        await _end(set(self._connections))

    def hold(self, *, up: bool = True, down: bool = True) -> None:
        """From now on nothing passes towards the target (up) or back from it (down); connections stay."""
        if up:
            self._up.clear()
        if down:
            self._down.clear()

    def release(self) -> None:
        self._up.set()
        self._down.set()

    def _accept(self, listener: socket.socket) -> None:
        near, _ = listener.accept()
        far = socket.socket()
        task = asyncio.create_task(self._join(near, far))
        self._connections.add(task)

        def ended(_: asyncio.Task[None]) -> None:
            # Here and not in the task, which may be cancelled before it begins.
            self._connections.discard(task)
            near.close()
            far.close()

        task.add_done_callback(ended)

    async def _join(self, near: socket.socket, far: socket.socket) -> None:
        near.setblocking(False)
        far.setblocking(False)
        ways: set[asyncio.Task[None]] = set()
        try:
            with suppress(OSError):
                await asyncio.get_running_loop().sock_connect(far, self._target)
                ways = {
                    asyncio.create_task(_pass(near, far, self._up)),
                    asyncio.create_task(_pass(far, near, self._down)),
                }
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(ways)


async def _pass(source: socket.socket, sink: socket.socket, gate: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while data := await loop.sock_recv(source, 65536):
            await gate.wait()
            await loop.sock_sendall(sink, data)


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
        # What is done when a task is done is done one turn later.
        await asyncio.sleep(0)


@asynccontextmanager
async def proxied(target: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(target)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.refuse()
