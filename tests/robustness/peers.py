"""An etcd of three members whose peers reach each other through links of a test's own, so that one can be cut off.

A member advertises its link. All peers dial the same link, so each connection is told apart by the member that its
first request names as its sender. A member that is cut off keeps its clients: it goes on answering what needs no peer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from tests.etcd import Etcd
from tests.robustness.members import Members

_CHUNK = 65536
_SENDER = re.compile(rb"\r\nX-Server-From: ([0-9a-f]+)\r\n", re.IGNORECASE)


class PeerLink:
    """Where one member is reached by the others."""

    def __init__(self, member: Etcd, isolated: set[str]) -> None:
        self._member = member
        self._isolated = isolated
        self._connections: dict[asyncio.Task[None], str] = {}
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self._member.advertised_peer = f"http://127.0.0.1:{port}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._end(list(self._connections))

    async def cut(self) -> None:
        """Ends what must not pass any more."""
        await self._end([task for task, sender in self._connections.items() if self._is_barred(sender)])

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_barred(self, sender: str) -> bool:
        return bool(self._isolated & {self._member.name, sender})

    async def _serve(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = ""
        far: asyncio.StreamWriter | None = None
        try:
            first = await near.readuntil(b"\r\n\r\n")
            sender = _SENDER.search(first)
            self._connections[task] = sender[1].decode() if sender is not None else ""
            if self._is_barred(self._connections[task]):
                return
            host, port = self._member.peer.removeprefix("http://").split(":")
            with suppress(OSError):
                answers, far = await asyncio.open_connection(host, int(port))
                far.write(first)
                ways = [asyncio.create_task(_carry(near, far)), asyncio.create_task(_carry(answers, back))]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            pass  # cut: the connection ends, and nobody waits for this task
        finally:
            del self._connections[task]
            for writer in (back, far):
                if writer is not None:
                    writer.transport.abort()


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()


class Peers:
    """`endpoint` of the members names those that stay together, for who watches what happens there."""

    def __init__(self, etcd: Members, links: list[PeerLink], isolated: set[str]) -> None:
        self.etcd = etcd
        self._links = links
        self._isolated = isolated

    def choose(self, member: Etcd) -> Etcd:
        """The member that will be cut off."""
        self.etcd.endpoint = ",".join(other.endpoint for other in self.etcd.members if other is not member)
        return member

    async def isolate(self, member: Etcd) -> None:
        identity = await asyncio.to_thread(member.identity)
        self._isolated |= {member.name, identity}
        for link in self._links:
            await link.cut()

    def heal(self) -> None:
        self._isolated.clear()


@asynccontextmanager
async def linked_peers(folder: Path) -> AsyncIterator[Peers]:
    etcd, isolated = Members(folder), set[str]()
    async with AsyncExitStack() as stack:
        links = [PeerLink(member, isolated) for member in etcd.members]
        for link in links:
            await link.open()
            stack.push_async_callback(link.close)
        etcd.name_each_other()
        try:
            await asyncio.to_thread(etcd.start)
            yield Peers(etcd, links, isolated)
        finally:
            await asyncio.to_thread(etcd.kill)
