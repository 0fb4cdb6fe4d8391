"""What one joblet may send at a time, and what a replica keeps of it."""

from __future__ import annotations

from controlplane.apiserver.edge.request_limits import MAX_BATCH_BYTES, MAX_MESSAGES
from controlplane.model.errors import LimitExceeded
from controlplane.wire.v1.joblets_pb2 import Heartbeat, JobletMessage, Report
from tests.component.joblet_sessions.stage import Api, Stage


def beats(count: int) -> list[JobletMessage]:
    return [JobletMessage(heartbeat=Heartbeat(number=number, stats={"n": number})) for number in range(1, count + 1)]


async def test_a_batch_of_too_many_messages_ends_the_stream(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    await talk.send(*(JobletMessage() for _ in range(MAX_MESSAGES + 1)))
    refusal = await talk.refusal()
    assert isinstance(refusal, LimitExceeded)
    assert refusal.field == "messages"


async def test_a_batch_of_too_many_bytes_ends_the_stream(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    await talk.send(JobletMessage(report=Report(observed=b"x" * MAX_BATCH_BYTES)))
    assert isinstance(await talk.refusal(), LimitExceeded)


async def test_of_many_heartbeats_in_a_batch_the_last_counts_and_is_stored_once(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    before = await api.live()
    await talk.send(*beats(MAX_MESSAGES))
    ack = await talk.until("heartbeat_ack")
    assert ack.number == MAX_MESSAGES
    await talk.send(JobletMessage(heartbeat=Heartbeat(number=MAX_MESSAGES + 1)))
    assert (await talk.until("heartbeat_ack")).number == MAX_MESSAGES + 1
    after = await api.live()
    assert before is not None
    assert after is not None
    assert after[1].stats == {"n": MAX_MESSAGES}
    # Nothing else was written meanwhile: the stats of the last heartbeat are one revision.
    assert await api.store.revision() - before[0].mod_revision == 1
