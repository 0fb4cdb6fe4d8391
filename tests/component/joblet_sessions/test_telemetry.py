"""Stats of a session: stored when they are new, on its own lease only, as often as the number of targets allows."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.apiserver.joblets.session import Sessions
from controlplane.model.errors import AlreadyExists, Invalid, Unavailable
from controlplane.model.event import Happening
from controlplane.model.pace import pace, stats_seconds
from controlplane.model.settings import Settings
from controlplane.model.target import Target, TargetStatus
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item
from controlplane.wire.v1 import joblets_pb2, targets_pb2
from controlplane.wire.v1.joblets_pb2 import JobletMessage
from tests.component.joblet_sessions.stage import PATIENCE_SECONDS, TARGET, Api, Stage, Talk, a_hello

HARDWARE = targets_pb2.Hardware(cpu_model="fast", cpus=8, memory=2**34, disk=2**40, os="Debian", kernel="6.1")


async def beat(talk: Talk, number: int, **stats: float) -> joblets_pb2.HeartbeatAck:
    """The answer to a heartbeat with these stats."""
    await talk.send(JobletMessage(heartbeat=joblets_pb2.Heartbeat(number=number, stats=stats)))
    while True:
        ack: joblets_pb2.HeartbeatAck = await talk.until("heartbeat_ack")
        if ack.number == number:
            return ack


async def stored(api: Api, **stats: float) -> int:
    """The revision of the live key, once it shows these stats."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await api.live()
            if found is not None and found[1].stats == stats:
                await api.cache.reached(found[0].mod_revision)
                return found[0].mod_revision
            await asyncio.sleep(0.01)


async def many_targets(api: Api, count: int) -> None:
    for start in range(0, count, 100):
        names = [f"other-{number}" for number in range(start, min(start + 100, count))]
        puts = tuple(transaction.put(keys.config("targets", name), codec.encode(Target(name=name))) for name in names)
        revision = (await api.store.commit(Item((), puts))).revision
    await api.cache.reached(revision, PATIENCE_SECONDS)


async def test_hardware_comes_with_the_hello(stage: Stage, api: Api) -> None:
    await stage.a_joblet(api, hardware=HARDWARE)
    found = await api.live()
    assert found is not None
    hardware = found[1].hardware
    assert hardware is not None
    assert (hardware.cpu_model, hardware.cpus, hardware.memory, hardware.kernel) == ("fast", 8, 2**34, "6.1")


async def test_bad_hardware_is_refused_by_its_field(stage: Stage, api: Api) -> None:
    talk = await stage.a_talk(api, hardware=targets_pb2.Hardware(cpu_model="x" * 1000))
    refusal = await talk.refusal()
    assert isinstance(refusal, Invalid)
    assert refusal.field == "hardware.cpu_model"


async def test_stats_are_stored_when_they_are_new_and_only_then(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    await beat(talk, 1, load=1.5, running=2)
    first = await stored(api, load=1.5, running=2)
    await beat(talk, 2, load=1.5, running=2)
    await beat(talk, 3)
    await beat(talk, 4, load=2.5, running=2)
    second = await stored(api, load=2.5, running=2)
    found = await api.live()
    assert found is not None
    assert (found[0].lease, found[1].session) == (int(talk.session, 16), talk.session)
    assert found[1].reported
    assert second == first + 1, "nothing was written in between"


async def test_stats_that_are_no_numbers_are_left_out_and_too_many_are_not_taken(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    await beat(talk, 1, **{f"s{number}": 1.0 for number in range(100)})
    await beat(talk, 2, good=1.0, bad=float("nan"), worse=float("inf"))
    await stored(api, good=1.0)


async def test_stats_of_a_session_that_is_over_are_not_stored(stage: Stage, api: Api) -> None:
    """The cache does not know yet that another joblet has the target."""
    talk = await stage.a_joblet(api)
    await api.fall_behind()
    other = await api.store.grant(60)
    taken = await api.live()
    assert taken is not None
    await api.store.commit(Item((), (transaction.put(keys.live(TARGET), taken[0].value, lease=other),)))
    before = await api.live()
    await beat(talk, 1, load=9.0)
    await beat(talk, 2, load=8.0)
    assert await api.live() == before


async def test_the_intervals_come_with_the_welcome_and_with_each_answer(stage: Stage, api: Api) -> None:
    talk = await stage.a_talk(api)
    welcome = await talk.until("welcome")
    idle = stats_seconds(Settings(), 1, busy=False)
    assert (welcome.heartbeat_seconds, welcome.stats_seconds) == (1, idle)
    ack = await beat(talk, 1)
    assert (ack.heartbeat_seconds, ack.stats_seconds) == (1, idle)
    placed = await api.desire()
    busy = stats_seconds(Settings(), 1, busy=True)
    assert (await beat(talk, 2)).stats_seconds == busy < idle
    await api.withdraw(placed)
    suspect = TargetStatus(target=TARGET, epoch=1, phase="Suspect")
    await api.put(keys.target_status(TARGET), codec.encode(suspect))
    assert (await beat(talk, 3)).stats_seconds == busy


async def test_a_refused_second_joblet_is_recorded(stage: Stage, api: Api) -> None:
    await stage.a_joblet(api, instance="the-first")
    heard: list[Happening] = []
    sessions = Sessions(api.ports.reads, api.ports.writes, heard.append)
    hello = a_hello(instance="the-second", instance_secret="another secret").hello
    with pytest.raises(AlreadyExists):
        await sessions.open(hello)
    [told] = heard
    assert (told.about.kind, told.about.name, told.reason) == ("Target", TARGET, "JobletRefused")
    assert "the-first" in told.message


async def test_with_many_targets_a_session_gets_a_longer_lease_and_beats_less_often(stage: Stage, api: Api) -> None:
    await many_targets(api, 1000)
    wanted = pace(Settings(), 1001)
    talk = await stage.a_talk(api)
    welcome = await talk.until("welcome")
    assert (welcome.lease_seconds, welcome.heartbeat_seconds) == (wanted.lease_seconds, wanted.heartbeat_seconds)
    assert welcome.lease_seconds > Settings().joblet_lease
    assert (await beat(talk, 1)).heartbeat_seconds == wanted.heartbeat_seconds


async def test_a_session_moves_to_a_longer_lease_when_targets_become_many(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    before = await api.live()
    await many_targets(api, 1000)
    ack = await beat(talk, 1)
    assert ack.heartbeat_seconds == 2, "never above a third of the lease that it has"
    assert isinstance(await talk.refusal(), Unavailable)
    again = await stage.a_talk(api, session=talk.session)
    welcome = await again.until("welcome")
    after = await api.live()
    assert before is not None
    assert after is not None
    assert (welcome.session, welcome.lease_seconds) == (f"{after[0].lease:x}", pace(Settings(), 1001).lease_seconds)
    assert after[0].create_revision == before[0].create_revision, "the target was never without a session"
