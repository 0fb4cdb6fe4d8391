"""Pulses alone, without etcd: a real server, a real listener that follows it, and strangers that connect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from controlplane.aio.clock import SystemClock, chance
from controlplane.election import message
from controlplane.election.election_settings import ElectionSettings
from controlplane.election.follower_handshake import FollowerHandshake
from controlplane.election.listener import Listener
from controlplane.election.message import Pulse
from controlplane.election.pulse import PulseServer
from controlplane.election.pulse_proof import PulseProver
from controlplane.election.verdict import PulseEvent, PulseState
from controlplane.election.view import CandidateEntry
from controlplane.model.leadership import Candidate

QUICK = ElectionSettings(
    pulse_silence_seconds=0.5, pulse_beat_seconds=0.05, pulse_answer_seconds=0.1, tick_seconds=0.02
)
EPOCH = 7
PROVER = PulseProver(b"k" * 32, chance)

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def a_pulse(
    settings: ElectionSettings = QUICK, incarnation: str = "leader", *, prover: PulseProver | None = None
) -> AsyncIterator[PulseServer]:
    server = PulseServer(settings, incarnation, SystemClock(), prover=prover)
    server.start()
    try:
        yield server
    finally:
        server.stop(timeout=5)


def entry_at(address: str, incarnation: str = "leader", *, proves: bool = False) -> CandidateEntry:
    candidate = Candidate(
        id="x", incarnation=incarnation, grpc="", http="", pulse=address, pid=1, version="", proves=proves
    )
    return CandidateEntry("/controlplane/election/1", candidate, EPOCH, EPOCH, 1)


class NotingListener(Listener):
    """Keeps the events that it took."""

    def __init__(self, entry: CandidateEntry, prover: PulseProver | None) -> None:
        super().__init__(QUICK, "standby", entry, prover=prover)
        self.events: list[PulseEvent] = []

    def _take(self, event: PulseEvent) -> None:
        self.events.append(event)
        super()._take(event)


@asynccontextmanager
async def following(
    address: str, *, prover: PulseProver | None = None, proves: bool = False
) -> AsyncIterator[tuple[NotingListener, asyncio.Task[str]]]:
    listener = NotingListener(entry_at(address, proves=proves), prover)

    async def how() -> str:
        return (await listener.follow()).how

    task = asyncio.create_task(how())
    try:
        yield listener, task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def reached(listener: Listener, state: PulseState = PulseState.UP) -> None:
    while listener.state is not state:
        await asyncio.sleep(0.001)


async def a_stranger(address: str, name: str = "") -> Stream:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    if name:
        writer.write(message.write(message.Hello(hello=name)))
    return reader, writer


class Strangers:
    """Raw connections to a pulse, closed at the end."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._held: list[Stream] = []

    async def connect(self, line: bytes = b"") -> Stream:
        stream = await a_stranger(self._address)
        self._held.append(stream)
        stream[1].write(line)
        return stream

    async def crowd_in(self, count: int, name: str) -> None:
        """Connects so many; returns when each of them was answered or closed."""
        crowd = [await self.connect(message.write(message.Hello(hello=name))) for _ in range(count)]
        await asyncio.gather(*(reader.readline() for reader, _ in crowd), return_exceptions=True)

    async def shake_hands(self, name: str = "standby", prover: PulseProver = PROVER) -> tuple[Stream, Pulse, bytes]:
        """A connection whose hello was answered, the answer, and the proof that was not sent yet."""
        handshake = FollowerHandshake(name, entry_at(self._address, proves=True).candidate, prover)
        stream = await self.connect(handshake.hello())
        answer = message.read_pulse((await stream[0].readline()).rstrip(b"\n"))
        assert answer is not None
        return stream, answer, handshake.proof(answer)

    def close(self) -> None:
        for _, writer in self._held:
            writer.transport.abort()
            writer.close()


@asynccontextmanager
async def strangers_at(address: str) -> AsyncIterator[Strangers]:
    strangers = Strangers(address)
    try:
        yield strangers
    finally:
        strangers.close()


async def is_closed(stream: Stream) -> bool:
    """Returns once the connection is closed; the beats before are skipped."""
    with suppress(ConnectionError):
        await stream[0].read()
    return True
