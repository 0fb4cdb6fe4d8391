"""A TCP link between two parts of the system that a test can cut, hold back, slow down and read along.

It lives on the test's own event loop. What is held is kept and passed on when released, as a network that heals
delivers what was sent again and again meanwhile.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from tests import encryption
from tests.etcd import free_ports

_CHUNK = 65536
_chance = random.Random(8)


class Transcript:
    """What one connection carried in one direction, from its first byte: all that was said, and how far it got."""

    def __init__(self) -> None:
        self.said = bytearray()
        self.passed = 0


class Way:
    """One direction, over all connections of a link: up is towards the target, down is back from it."""

    def __init__(self, *, transcribe: bool) -> None:
        self._transcribe = transcribe
        self.open = asyncio.Event()
        self.open.set()
        self.bytes_per_second = 0
        self._delay = (0.0, 0.0)

    def delay(self, seconds: float, give_or_take: float) -> None:
        """From now on everything takes that long, each piece another time; nothing overtakes what was sent before."""
        self._delay = (seconds - give_or_take, seconds + give_or_take)

    async def carry(self, source: socket.socket, sink: socket.socket, transcript: Transcript) -> None:
        """Until its end. While the way is closed it goes on reading, so that a transcript shows what is held."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        reading = asyncio.create_task(self._read(source, waiting, transcript))
        try:
            while (piece := await waiting.get())[1]:
                due, data = piece
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                await self.open.wait()
                await loop.sock_sendall(sink, data)
                transcript.passed += len(data)
                if self.bytes_per_second:
                    await asyncio.sleep(len(data) / self.bytes_per_second)
                waiting.task_done()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(
        self, source: socket.socket, waiting: asyncio.Queue[tuple[float, bytes]], transcript: Transcript
    ) -> None:
        data = b"."
        while data:
            try:
                data = await asyncio.get_running_loop().sock_recv(source, _CHUNK)
            except OSError:
                data = b""
            if self._transcribe:
                transcript.said += data
            late = _chance.uniform(*self._delay) if any(self._delay) else 0.0
            waiting.put_nowait((asyncio.get_running_loop().time() + late, data))
            if self.bytes_per_second:
                # A slow reader makes the sender wait.
                await waiting.join()


class Connection:
    """One connection that was taken, and its continuation to the target."""

    def __init__(self, near: socket.socket) -> None:
        self.near = near
        self.far = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.up, self.down = Transcript(), Transcript()
        self.task: asyncio.Task[None] | None = None
        for end in (self.near, self.far):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def join(self, target: tuple[str, int], up: Way, down: Way) -> None:
        """Ends when either side does."""
        ways: list[asyncio.Task[None]] = []
        try:
            await asyncio.get_running_loop().sock_connect(self.far, target)
            ways.append(asyncio.create_task(up.carry(self.near, self.far, self.up)))
            ways.append(asyncio.create_task(down.carry(self.far, self.near, self.down)))
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            return
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self.close()

    def close(self) -> None:
        for end in (self.near, self.far):
            end.close()


class Link:
    """Takes connections at `address` and joins each to one to the target; keeps transcripts when told to."""

    def __init__(self, target: str, *, transcribe: bool = False) -> None:
        parts = urlsplit(target if "//" in target else f"//{target}")
        self._target = (parts.hostname or "", parts.port or 0)
        (self._port,) = free_ports(1)
        self._listener: socket.socket | None = None
        self.up, self.down = Way(transcribe=transcribe), Way(transcribe=transcribe)
        self.connections: list[Connection] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        return f"{encryption.SCHEME}://{self.address}"

    def listen(self) -> None:
        """Also after `refuse`, at the same address."""
        self._listener = socket.create_server(("127.0.0.1", self._port), backlog=128)
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    async def refuse(self) -> None:
        """Ends every connection and refuses new ones."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        tasks = [connection.task for connection in self.connections if connection.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self.connections:
            connection.close()

    def hold(self, *ways: Way) -> None:
        """From now on nothing passes these ways, or either; connections stay, and new ones are taken."""
        for way in ways or (self.up, self.down):
            way.open.clear()

    def release(self) -> None:
        for way in (self.up, self.down):
            way.open.set()

    def _accept(self, listener: socket.socket) -> None:
        """No task does this: one that is cancelled in the moment of a connection would leave its socket open."""
        with suppress(BlockingIOError, ConnectionError):
            near, _ = listener.accept()
            connection = Connection(near)
            connection.task = asyncio.create_task(connection.join(self._target, self.up, self.down))
            self.connections.append(connection)


@asynccontextmanager
async def linked(target: str, *, transcribe: bool = False) -> AsyncIterator[Link]:
    link = Link(target, transcribe=transcribe)
    link.listen()
    try:
        yield link
    finally:
        link.release()
        await link.refuse()
