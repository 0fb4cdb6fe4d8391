"""A pulse with a cluster key: whose place is kept, which proofs are refused, and that no handshake delays a beat."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from controlplane.aio.clock import SystemClock, chance
from controlplane.election import message
from controlplane.election.pulse import PulseServer
from controlplane.election.pulse_proof import PulseProver
from controlplane.election.verdict import PulseEvent
from tests.component.pulse_stage import (
    EPOCH,
    PROVER,
    QUICK,
    Strangers,
    Stream,
    a_pulse,
    following,
    is_closed,
    reached,
    strangers_at,
)

HANDSHAKE_SECONDS = 1.0
# A line with such an epoch was sent after the epoch was taken from here.
LATER_EPOCHS = itertools.count(EPOCH + 1)
UP_ALL_THE_TIME = {PulseEvent.ALIVE}


class MovedClock(SystemClock):
    """A clock that a test may move forward."""

    ahead_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_seconds


async def keeps_its_place(server: PulseServer, stream: Stream) -> bool:
    """Whether the connection lives on when more strangers come than there are places for."""
    async with strangers_at(server.address) as strangers:
        await strangers.crowd_in(100, "stranger")
        epoch = next(LATER_EPOCHS)
        server.lead(epoch)
        with contextlib.suppress(ConnectionError):
            while line := await stream[0].readline():
                if msgspec.json.decode(line)["epoch"] == epoch:
                    return True
        return False


async def test_a_proven_follower_keeps_its_place_among_strangers_that_show_its_incarnation() -> None:
    async with a_pulse(prover=PROVER) as server, strangers_at(server.address) as strangers, asyncio.timeout(30):
        server.expect(["leader", "standby"])
        server.lead(EPOCH)
        await strangers.crowd_in(100, "standby")
        async with following(server.address, prover=PROVER, proves=True) as (listener, verdict):
            await reached(listener)
            await strangers.crowd_in(200, "standby")
            server.leave(EPOCH)
            assert await verdict == "stepped-down"
            # Displaced, it would have come again, and would have heard the good-bye then.
            assert set(listener.events) == {PulseEvent.ALIVE, PulseEvent.BYE}


async def test_only_a_proof_keeps_the_place_of_a_candidate() -> None:
    async with a_pulse(prover=PROVER) as server, strangers_at(server.address) as strangers, asyncio.timeout(30):
        server.expect(["leader", "standby"])
        claimed = await strangers.connect(message.write(message.Hello(hello="standby")))
        assert not await keeps_its_place(server, claimed)
        unproven, _, _ = await strangers.shake_hands()
        assert not await keeps_its_place(server, unproven)
        proven, _, proof = await strangers.shake_hands()
        proven[1].write(proof)
        assert await keeps_its_place(server, proven)


async def test_a_proven_follower_that_is_no_candidate_is_a_stranger() -> None:
    async with a_pulse(prover=PROVER) as server, strangers_at(server.address) as strangers, asyncio.timeout(30):
        server.expect(["leader"])
        proven, _, proof = await strangers.shake_hands()
        proven[1].write(proof)
        assert not await keeps_its_place(server, proven)


async def test_a_candidate_has_no_more_places_than_a_replica_needs() -> None:
    async with a_pulse(prover=PROVER) as server, strangers_at(server.address) as strangers, asyncio.timeout(30):
        server.expect(["leader", "standby"])
        answered = [await strangers.shake_hands() for _ in range(9)]
        for stream, _, proof in answered:
            stream[1].write(proof)
        while server.followers() > 8:
            await asyncio.sleep(QUICK.tick_seconds)
        assert await is_closed(await strangers.connect(message.write(message.Hello(hello="standby"))))
        assert server.followers() == 8


async def test_a_late_proof_keeps_no_place_and_costs_no_connection() -> None:
    clock = MovedClock()
    server = PulseServer(QUICK, "leader", clock, prover=PROVER)
    server.start()
    async with strangers_at(server.address) as strangers, asyncio.timeout(30):
        server.expect(["leader", "standby"])
        stream, _, proof = await strangers.shake_hands()
        clock.ahead_seconds = HANDSHAKE_SECONDS
        stream[1].write(proof)
        for _ in range(3):
            assert await stream[0].readline()
        assert not await keeps_its_place(server, stream)
    server.stop(timeout=5)


Forgery = Callable[[Strangers], Awaitable[tuple[Stream, bytes]]]


async def reflected(strangers: Strangers) -> tuple[Stream, bytes]:
    """The server's own proof, sent back."""
    stream, answer, _ = await strangers.shake_hands()
    return stream, message.write(message.Proof(proof=answer.proof))


async def replayed(strangers: Strangers) -> tuple[Stream, bytes]:
    """The proof of an earlier connection."""
    _, _, proof = await strangers.shake_hands()
    stream, _, _ = await strangers.shake_hands()
    return stream, proof


async def of_another_key(strangers: Strangers) -> tuple[Stream, bytes]:
    stream, _, proof = await strangers.shake_hands(prover=PulseProver(b"o" * 32, chance))
    return stream, proof


async def of_another_name(strangers: Strangers) -> tuple[Stream, bytes]:
    _, _, proof = await strangers.shake_hands("another")
    stream, _, _ = await strangers.shake_hands("standby")
    return stream, proof


def junk(line: bytes) -> Forgery:
    async def send(strangers: Strangers) -> tuple[Stream, bytes]:
        stream, _, _ = await strangers.shake_hands()
        return stream, line

    return send


FORGERIES = {
    "reflected": reflected,
    "replayed": replayed,
    "another key": of_another_key,
    "another name": of_another_name,
    "no text": junk(b"\xff\x00\n"),
    "no ascii": junk('{"proof":"é"}\n'.encode()),
    "a lone surrogate": junk(b'{"proof":"\\ud800aaaaaaaa"}\n'),
    "a hello": junk(b'{"hello":"standby"}\n'),
    "too long": junk(b"x" * 4000),
    "two lines": junk(b'{"proof":"a"}\n{"proof":"a"}\n'),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
async def test_a_forged_proof_closes_its_own_connection_and_no_other(forge: Forgery) -> None:
    async with (
        a_pulse(prover=PROVER) as server,
        strangers_at(server.address) as strangers,
        following(server.address, prover=PROVER, proves=True) as (listener, _),
        asyncio.timeout(30),
    ):
        await reached(listener)
        stream, forged = await forge(strangers)
        stream[1].write(forged)
        assert await is_closed(stream)
        assert set(listener.events) == UP_ALL_THE_TIME


async def by_bytes(stream: Stream, line: bytes) -> None:
    """Sends a byte with each beat, until the server hangs up."""
    with contextlib.suppress(ConnectionError):
        for byte in line:
            stream[1].write(bytes([byte]))
            await stream[1].drain()
            await asyncio.sleep(QUICK.pulse_beat_seconds)


async def test_slow_and_half_open_handshakes_delay_no_beat() -> None:
    async with (
        a_pulse(prover=PROVER) as server,
        strangers_at(server.address) as strangers,
        following(server.address, prover=PROVER, proves=True) as (listener, _),
        asyncio.timeout(60),
    ):
        server.expect(["leader", "standby"])
        await reached(listener)
        silent = [await strangers.connect() for _ in range(10)]
        slow_hello = [await strangers.connect() for _ in range(10)]
        without_proof = [(await strangers.shake_hands())[0] for _ in range(10)]
        slow_proof = [await strangers.shake_hands() for _ in range(10)]
        hello = message.write(message.Hello(hello="standby", nonce="n" * 64))
        trickles = [by_bytes(stream, hello) for stream in slow_hello]
        trickles += [by_bytes(stream, proof) for stream, _, proof in slow_proof]
        await asyncio.gather(*trickles)
        # Who said nothing, or too slowly, is closed. Who only proved nothing is served as a stranger.
        assert all([await is_closed(stream) for stream in (*silent, *slow_hello)])
        for reader, _ in (*without_proof, *(stream for stream, _, _ in slow_proof)):
            assert await reader.readline()
        assert set(listener.events) == UP_ALL_THE_TIME


async def test_a_follower_of_the_version_before_is_answered_as_ever() -> None:
    async with a_pulse(prover=PROVER) as server, strangers_at(server.address) as strangers, asyncio.timeout(30):
        server.lead(EPOCH)
        stream = await strangers.connect(b'{"hello":"me"}\n')
        for _ in range(3):
            line = msgspec.json.decode(await stream[0].readline())
            assert {**line, "wall": 0} == {"incarnation": "leader", "epoch": EPOCH, "ended": 0, "wall": 0}
        stream[1].write(b'{"proof":""}\n')
        assert await is_closed(stream)
