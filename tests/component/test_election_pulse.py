"""The pulse alone: what it takes to end a term by it, and what does not suffice."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace

import msgspec

from controlplane.election import message
from controlplane.election.candidacy import end_term
from controlplane.election.verdict import PulseState
from controlplane.model.leadership import TermEnd
from tests.component.election_stage import LONG, Replica, followed, proof
from tests.component.pulse_stage import EPOCH, QUICK, a_pulse, a_stranger, following, reached
from tests.etcd import Etcd, free_ports
from tests.proxy import Proxy, proxied


async def test_a_leader_that_says_good_bye_has_stepped_down() -> None:
    async with a_pulse() as server, following(server.address) as (listener, verdict):
        server.lead(EPOCH)
        await reached(listener)
        server.leave(EPOCH)
        assert await verdict == "stepped-down"


async def test_a_good_bye_that_was_missed_is_heard_at_the_next_hello() -> None:
    async with a_pulse() as server:
        server.leave(EPOCH)
        async with following(server.address) as (_, verdict):
            assert await verdict == "stepped-down"


async def test_a_good_bye_to_an_earlier_epoch_says_nothing_about_this_one() -> None:
    async with a_pulse() as server:
        server.leave(EPOCH - 1)
        async with following(server.address) as (listener, verdict):
            await reached(listener)
            assert not verdict.done()


async def test_a_closed_connection_and_a_refused_one_are_a_death() -> None:
    async with a_pulse() as server, following(server.address) as (listener, verdict):
        await reached(listener)
        server.stop(timeout=5)
        assert await verdict == "pulse-closed"


async def test_another_incarnation_at_the_address_is_a_death() -> None:
    async with (
        a_pulse() as server,
        a_pulse(incarnation="another") as other,
        proxied(server.address) as proxy,
        following(proxy.address) as (listener, verdict),
    ):
        await reached(listener)
        proxy.aim(other.address)
        await proxy.cut()
        assert await verdict == "pulse-closed"


async def test_a_connection_that_is_only_cut_is_made_again() -> None:
    async with (
        a_pulse() as server,
        proxied(server.address) as proxy,
        following(proxy.address) as (listener, verdict),
    ):
        for _ in range(20):
            await reached(listener)
            await proxy.cut()
        await reached(listener)
        assert not verdict.done()


async def test_silence_and_no_answer_are_a_death() -> None:
    async with (
        a_pulse() as server,
        proxied(server.address) as proxy,
        following(proxy.address) as (listener, verdict),
    ):
        await reached(listener)
        proxy.hold()
        assert await verdict == "pulse-silent"


async def test_a_leader_that_was_never_reached_is_left_alone() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    tries = 0
    async with following(address) as (listener, verdict):
        while tries < 2 * QUICK.ticks(QUICK.pulse_silence_seconds):
            await asyncio.sleep(QUICK.tick_seconds)
            tries += 1
        assert not verdict.done()
        assert listener.state is PulseState.UNREACHED


async def test_an_address_that_makes_no_sense_is_left_alone() -> None:
    for address in ("", "nonsense", "host:port", "127.0.0.1:99999"):
        async with following(address) as (listener, verdict):
            await asyncio.sleep(5 * QUICK.tick_seconds)
            assert not verdict.done()
            assert listener.state is PulseState.UNREACHED


async def test_junk_closes_its_own_connection_and_no_other() -> None:
    async with a_pulse() as server, following(server.address) as (listener, verdict):
        await reached(listener)
        host, _, port = server.address.rpartition(":")
        for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\xff" * 4000, b"{}\n", b'{"hello":1}\n', b'{"hello":"x"}\nmore'):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(junk)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.transport.abort()
        assert not verdict.done()
        assert listener.state is PulseState.UP


async def test_a_stranger_that_says_nothing_is_closed_and_crowds_do_not_lock_out() -> None:
    async with a_pulse() as server:
        host, _, port = server.address.rpartition(":")
        crowd = [socket.create_connection((host, int(port))) for _ in range(100)]
        async with following(server.address) as (listener, _):
            await reached(listener)
        for stranger in crowd:
            stranger.close()


async def test_a_hello_is_answered_with_what_is_led() -> None:
    async with a_pulse() as server:
        server.lead(EPOCH)
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(message.write(message.Hello(hello="me")))
        for _ in range(3):
            pulse = msgspec.json.decode(await reader.readline(), type=message.Pulse)
            assert (pulse.incarnation, pulse.epoch, pulse.ended) == ("leader", EPOCH, 0)
        writer.transport.abort()


@asynccontextmanager
async def three_with_cuttable_pulses(endpoint: str) -> AsyncIterator[tuple[list[Replica], list[Proxy]]]:
    """Three replicas that reach each other's pulse only through proxies."""
    ports = free_ports(3)
    replicas: list[Replica] = []
    proxies: list[Proxy] = []
    async with AsyncExitStack() as stack:
        for name, port in zip("abc", ports, strict=True):
            proxy = await stack.enter_async_context(proxied(f"127.0.0.1:{port}"))
            settings = replace(LONG, pulse_port=port, pulse_advertise=proxy.address)
            replica = await stack.enter_async_context(Replica(endpoint, name, settings).running())
            await replica.queued()
            replicas.append(replica)
            proxies.append(proxy)
        yield replicas, proxies


async def test_pulses_that_are_cut_for_good_cost_one_change_of_leader(etcd: Etcd) -> None:
    async with three_with_cuttable_pulses(etcd.endpoint) as (replicas, proxies):
        await replicas[0].terms.get()
        await followed(replicas[0], 2)
        await followed(replicas[1], 1)
        for proxy in proxies:
            await proxy.refuse()
        view = replicas[0].view
        await view.until(lambda: len(view.terms()) == 2)
        # The one that was wrongly ended is back in the queue: all know that pulses err.
        await view.until(lambda: "a" in [e.candidate.id for e in view.candidates()[1:]])
        for _ in range(5):
            for proxy in proxies:
                await proxy.open()
            await asyncio.sleep(2 * LONG.pulse_beat_seconds)
            for proxy in proxies:
                await proxy.refuse()
            await asyncio.sleep(LONG.pulse_silence_seconds / 2)
        assert len(view.terms()) == 2


async def test_a_pulse_that_only_one_standby_misses_is_noted_for_all(etcd: Etcd) -> None:
    """The one that ends the term is not the one that follows; the record still says how it ended."""
    async with three_with_cuttable_pulses(etcd.endpoint) as (replicas, _):
        first = await replicas[0].terms.get()
        view = replicas[2].view
        own, leader = view.candidates()[2], view.candidates()[0]
        end = TermEnd(epoch=first.epoch, how="pulse-closed", incarnation=leader.candidate.incarnation)
        assert await end_term(replicas[2].store, own, leader, end, patience_seconds=5)
        await replicas[1].terms.get()
        last = replicas[1].view.last_term()
        assert last is not None
        assert last.ended == end


async def test_an_old_view_ends_no_term(etcd: Etcd) -> None:
    async with three_with_cuttable_pulses(etcd.endpoint) as (replicas, _):
        leadership = await replicas[0].terms.get()
        view = replicas[1].view
        own, leader = view.candidates()[1], view.candidates()[0]
        await leadership.proclaim()
        end = TermEnd(epoch=leadership.epoch, how="pulse-closed")
        assert not await end_term(replicas[1].store, own, leader, end, patience_seconds=5)
        await leadership.commit([proof("still")])
        assert not leadership.lost.is_set()


async def test_strangers_however_many_do_not_keep_a_standby_out() -> None:
    async with a_pulse() as server:
        server.expect(["leader", "standby"])
        server.lead(EPOCH)
        held = [await a_stranger(server.address, f"stranger-{number}") for number in range(100)]
        async with following(server.address) as (listener, verdict):
            async with asyncio.timeout(10):
                await reached(listener)
            # Those who come later do not take its place, either.
            held += [await a_stranger(server.address, f"late-{number}") for number in range(100)]
            held += [await a_stranger(server.address) for _ in range(100)]
            server.leave(EPOCH)
            assert await verdict == "stepped-down"
        for _, writer in held:
            writer.close()


async def test_one_name_cannot_take_more_places_than_a_replica_needs() -> None:
    async with a_pulse() as server:
        server.expect(["leader", "standby"])
        held = [await a_stranger(server.address, "standby") for _ in range(30)]
        async with asyncio.timeout(10):
            ended = [reader for reader, _ in held if not await reader.readline()]
            assert len(ended) == 22
        for _, writer in held:
            writer.close()


async def test_a_replica_that_is_not_known_yet_is_followed_too() -> None:
    async with a_pulse() as server, following(server.address) as (listener, _):
        server.expect(["leader"])
        async with asyncio.timeout(10):
            await reached(listener)
