"""A target's room that changes while its joblet is connected."""

from __future__ import annotations

import asyncio

from controlplane.wire.v1 import joblets_pb2
from controlplane.wire.v1.joblets_pb2 import JobletMessage
from tests.component.joblet_sessions.stage import PATIENCE_SECONDS, Api, Stage, Talk


async def beat(talk: Talk, number: int, **capacity: float) -> None:
    """Returns when the heartbeat was answered."""
    await talk.send(JobletMessage(heartbeat=joblets_pb2.Heartbeat(number=number, capacity=capacity)))
    while (await talk.until("heartbeat_ack")).number != number:
        pass


async def stored(api: Api, **capacity: float) -> int:
    """The revision of the live key, once it shows this."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await api.live()
            if found is not None and found[1].capacity == capacity:
                return found[0].mod_revision
            await asyncio.sleep(0.01)


async def test_what_a_heartbeat_says_is_stored_once_and_on_the_same_session(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api, capacity={"cpu": 4})
    before = await api.live()
    assert before is not None
    await beat(talk, 1, cpu=8, memory=2**30)
    changed = await stored(api, cpu=8, memory=2**30)
    await beat(talk, 2, cpu=8, memory=2**30)
    await beat(talk, 3)
    after = await api.live()
    assert after is not None
    assert after[0].mod_revision == changed, "nothing was written that was not new"
    assert after[0].lease == before[0].lease
    assert after[1].session == before[1].session


async def test_what_cannot_be_a_room_changes_nothing(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api, capacity={"cpu": 4})
    revision = await stored(api, cpu=4)
    await beat(talk, 1, cpu=-1)
    await beat(talk, 2, cpu=float("nan"))
    await beat(talk, 3, **{f"q{number}": 1.0 for number in range(100)})
    await beat(talk, 4)
    found = await api.live()
    assert found is not None
    assert found[0].mod_revision == revision


async def test_a_session_that_is_over_changes_nothing(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api, capacity={"cpu": 4})
    found = await api.live()
    assert found is not None
    await api.fall_behind()
    await api.store.revoke(found[0].lease)
    await talk.send(JobletMessage(heartbeat=joblets_pb2.Heartbeat(number=1, capacity={"cpu": 8})))
    await talk.refusal()
    assert await api.live() is None
