"""A leader knows at once that another process is gone, and again that it is there."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from controlplane.aio.clock import SystemClock
from controlplane.election import message
from controlplane.election.election_settings import ElectionSettings
from controlplane.election.peer_presence import PeerPresence
from controlplane.election.pulse import PulseServer
from controlplane.election.view import CandidateEntry
from controlplane.model.leadership import Candidate
from tests.etcd import free_ports


def a_pulse(life: str, port: int = 0) -> PulseServer:
    server = PulseServer(ElectionSettings(pulse_port=port), life, SystemClock())
    server.start()
    return server


def an_entry(life: str, address: str) -> CandidateEntry:
    candidate = Candidate(id=life, incarnation=life, grpc="", http="", pulse=address, pid=1, version="1")
    return CandidateEntry(f"/controlplane/election/{life}", candidate, 7, 7, 1)


class Impostor:
    """A replica of another life at the address of one that is gone. A follower that hears it hangs up."""

    def __init__(self) -> None:
        self.was_left = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert message.read_hello((await reader.readline()).rstrip(b"\n")) is not None
        writer.write(message.write(message.Pulse(incarnation="impostor", epoch=0, ended=0, wall=0)))
        with contextlib.suppress(ConnectionError):
            await reader.read()
        self.was_left.set()
        writer.close()


async def until(changed: asyncio.Event, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await changed.wait()
            changed.clear()


async def test_who_is_gone_is_absent_until_it_answers_again() -> None:
    changed = asyncio.Event()
    presence = PeerPresence(ElectionSettings(), "me")
    presence.changed = changed.set
    [port] = free_ports(1)
    other = a_pulse("other", port)
    presence.follow([an_entry("me", "127.0.0.1:1"), an_entry("other", other.address)])
    async with asyncio.timeout(30):
        while not other.followers():
            await asyncio.sleep(0.02)
    assert not presence.absent
    other.stop(5)
    await until(changed, lambda: presence.absent == {"other"})
    # Somebody else at its address is not the one who left.
    impostor = Impostor()
    async with await asyncio.start_server(impostor.answer, "127.0.0.1", port, reuse_address=True):
        async with asyncio.timeout(30):
            await impostor.was_left.wait()
        assert presence.absent == {"other"}
    again = a_pulse("other", port)
    await until(changed, lambda: not presence.absent)
    presence.follow([])
    assert not presence.absent
    await presence.close()
    again.stop(5)


async def test_who_was_never_reached_is_not_called_absent() -> None:
    changed = asyncio.Event()
    presence = PeerPresence(ElectionSettings(), "me")
    presence.changed = changed.set
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    there = a_pulse("there")
    presence.follow([an_entry("unreached", address), an_entry("there", there.address)])
    async with asyncio.timeout(30):
        while not there.followers():
            await asyncio.sleep(0.02)
    there.stop(5)
    await until(changed, lambda: "there" in presence.absent)
    assert presence.absent == {"there"}
    await presence.close()
