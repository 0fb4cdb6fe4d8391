"""A standby with the cluster key: which servers it believes, and what a stranger at a leader's address can do to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec
import pytest

from controlplane.aio.clock import SystemClock, chance
from controlplane.election import message
from controlplane.election.clock_skew import ClockSkew
from controlplane.election.message import Pulse
from controlplane.election.peer_presence import PeerPresence
from controlplane.election.pulse import PulseServer
from controlplane.election.pulse_proof import PulseProver
from controlplane.election.verdict import PulseEvent, PulseState
from controlplane.election.view import CandidateEntry
from controlplane.model.leadership import Term
from tests.component.election_stage import Replica, followed
from tests.component.pulse_stage import (
    EPOCH,
    PROVER,
    QUICK,
    a_pulse,
    entry_at,
    following,
    reached,
    strangers_at,
)
from tests.etcd import Etcd
from tests.proxy import proxied

OTHER_KEY = PulseProver(b"o" * 32, chance)


class OldHello(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A hello as the version before reads it."""

    hello: str


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[str]:
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


async def old_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers as the version before does, and hangs up when it is told more than a hello."""
    with contextlib.suppress(ConnectionError, msgspec.DecodeError):
        msgspec.json.decode((await reader.readline()).rstrip(b"\n"), type=OldHello)
        writer.write(b'{"incarnation":"leader","epoch":7,"ended":0,"wall":1.5}\n')
        await reader.read(1)
    writer.close()


async def test_a_follower_with_a_key_follows_a_server_of_the_version_before() -> None:
    async with (
        served(old_server) as address,
        following(address, prover=PROVER) as (listener, _),
        asyncio.timeout(30),
    ):
        await reached(listener)


async def test_a_follower_without_a_key_follows_a_server_that_proves_itself() -> None:
    async with (
        a_pulse(prover=PROVER) as server,
        following(server.address, proves=True) as (listener, verdict),
        asyncio.timeout(30),
    ):
        await reached(listener)
        server.stop(timeout=5)
        assert await verdict == "pulse-closed"


@pytest.mark.parametrize("prover", [None, OTHER_KEY], ids=["no key", "another key"])
async def test_a_server_without_the_key_is_not_believed_when_its_candidate_proves_itself(
    prover: PulseProver | None,
) -> None:
    async with a_pulse(prover=prover) as server:
        server.leave(EPOCH)
        async with following(server.address, prover=PROVER, proves=True) as (listener, verdict):
            while len(listener.events) < 2 * QUICK.ticks(QUICK.pulse_silence_seconds):
                await asyncio.sleep(QUICK.tick_seconds)
            # The pause after the last of so many tries counts as silence, of which an unreached leader is not blamed.
            assert set(listener.events) <= {PulseEvent.NO_ANSWER, PulseEvent.SILENCE}
            assert listener.state is PulseState.UNREACHED
            assert not verdict.done()


async def test_a_killed_leader_is_judged_by_the_closed_connection_and_the_refused_one() -> None:
    async with (
        a_pulse(prover=PROVER) as server,
        following(server.address, prover=PROVER, proves=True) as (listener, verdict),
        asyncio.timeout(30),
    ):
        await reached(listener)
        server.stop(timeout=5)
        assert await verdict == "pulse-closed"
        end = listener.events[listener.events.index(PulseEvent.CLOSED) :]
        # A process that is ending may accept a connection and reset it, so there may be a try in between.
        assert (end[0], end[-1]) == (PulseEvent.CLOSED, PulseEvent.REFUSED)
        assert len(end) <= 3


class Squatter:
    """A stranger at the address of a dead leader; `answer` is the line that it has for everybody."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readline()
            writer.write(self._answer)
            await reader.read()
        writer.close()


async def recorded(server: PulseServer) -> bytes:
    """A true answer of the leader, to another connection of the same follower."""
    async with strangers_at(server.address) as strangers:
        _, answer, _ = await strangers.shake_hands()
    return message.write(answer)


@pytest.mark.parametrize(
    "answer",
    [
        message.write(Pulse(incarnation="leader", epoch=EPOCH, ended=0)),
        message.write(Pulse(incarnation="leader", epoch=0, ended=EPOCH)),
        message.write(Pulse(incarnation="another", epoch=0, ended=0, nonce="n", proof="0" * 64)),
        None,
        b"",
        b"\xff\n",
    ],
    ids=["as the leader", "a good-bye", "as another", "a recorded answer", "no answer", "junk"],
)
async def test_a_stranger_at_the_address_is_neither_the_leader_nor_its_death(answer: bytes | None) -> None:
    async with (
        a_pulse(prover=PROVER) as server,
        proxied(server.address) as proxy,
        following(proxy.address, prover=PROVER, proves=True) as (listener, verdict),
        asyncio.timeout(30),
    ):
        await reached(listener)
        squatter = Squatter(await recorded(server) if answer is None else answer)
        async with served(squatter.serve) as address:
            proxy.aim(address)
            await proxy.cut()
            # The leader is judged by its silence, as if nobody had answered.
            assert await verdict == "pulse-silent"
        after = listener.events[listener.events.index(PulseEvent.CLOSED) :]
        assert set(after) == {PulseEvent.CLOSED, PulseEvent.NO_ANSWER, PulseEvent.SILENCE}


async def test_another_incarnation_that_proves_itself_at_the_address_is_a_death_at_once() -> None:
    async with (
        a_pulse(prover=PROVER) as server,
        a_pulse(incarnation="another", prover=PROVER) as other,
        proxied(server.address) as proxy,
        following(proxy.address, prover=PROVER, proves=True) as (listener, verdict),
        asyncio.timeout(30),
    ):
        await reached(listener)
        proxy.aim(other.address)
        await proxy.cut()
        assert await verdict == "pulse-closed"
        assert listener.events[-1] is PulseEvent.IMPOSTOR


async def test_a_stranger_at_the_address_of_an_absent_replica_does_not_make_it_present() -> None:
    squatter = Squatter(message.write(Pulse(incarnation="leader", epoch=0, ended=0)))
    changed: asyncio.Queue[frozenset[str]] = asyncio.Queue()
    async with a_pulse(prover=PROVER) as server, proxied(server.address) as proxy, asyncio.timeout(30):
        presence = PeerPresence(QUICK, "standby", prover=PROVER)
        presence.changed = lambda: changed.put_nowait(frozenset(presence.absent))
        presence.follow([entry_at(proxy.address, proves=True)])
        while not server.followers():
            await asyncio.sleep(QUICK.tick_seconds)
        async with served(squatter.serve) as address:
            proxy.aim(address)
            await proxy.cut()
            assert await changed.get() == {"leader"}
            await asyncio.sleep(10 * QUICK.tick_seconds)
            assert changed.empty()
            proxy.aim(server.address)
            await proxy.cut()
            assert await changed.get() == frozenset()
        await presence.close()


class FastClock(SystemClock):
    """A clock an hour ahead; the looks at the others' clocks follow each other at once, and are counted."""

    def __init__(self) -> None:
        self.looks = 0

    def wall(self) -> datetime:
        return super().wall() + timedelta(hours=1)

    async def sleep(self, seconds: float) -> None:
        self.looks += 1
        await asyncio.sleep(0)


class StillView:
    """A view of a queue that does not change."""

    def __init__(self, address: str) -> None:
        self._entry = entry_at(address, proves=True)

    def revision(self) -> int:
        return EPOCH

    def candidates(self) -> list[CandidateEntry]:
        return [self._entry]

    def last_term(self) -> Term | None:
        return None

    async def reached(self, revision: int) -> None:
        await asyncio.Event().wait()

    async def changed(self, after_revision: int) -> int:
        await asyncio.Event().wait()
        return EPOCH


@pytest.mark.parametrize(("prover", "counts"), [(PROVER, True), (OTHER_KEY, False), (None, False)])
async def test_only_the_time_of_a_peer_that_proves_itself_counts(prover: PulseProver | None, counts: bool) -> None:
    async with a_pulse(prover=prover) as server, asyncio.timeout(30):
        own = msgspec.structs.replace(entry_at("").candidate, id="own", incarnation="standby")
        clock = FastClock()
        skew = ClockSkew(StillView(server.address), own, clock, prover=PROVER)
        looking = asyncio.create_task(skew.run())
        while clock.looks < 5:
            await asyncio.sleep(QUICK.tick_seconds)
        looking.cancel()
        await asyncio.wait({looking})
        assert set(skew.off) == ({"own", "x"} if counts else set())


@pytest.mark.parametrize("provers", [(PROVER, PROVER), (PROVER, None), (None, PROVER)], ids=["both", "first", "second"])
async def test_replicas_with_and_without_a_key_follow_each_other(
    etcd: Etcd, provers: tuple[PulseProver | None, PulseProver | None]
) -> None:
    first, second = (Replica(etcd.endpoint, name, prover=prover) for name, prover in zip("ab", provers, strict=True))
    async with asyncio.timeout(60), first.running():
        await first.terms.get()
        async with second.running():
            await second.queued()
            await followed(first, 1)
            proving = [entry.candidate.proves for entry in second.view.candidates()]
            assert proving == [prover is not None for prover in provers]
            await first.election.step_down()
            await second.terms.get()
            last = second.view.last_term()
            assert last is not None
            assert last.ended is not None
            assert last.ended.how == "stepped-down"
            await followed(second, 1)
