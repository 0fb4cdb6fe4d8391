"""What a joblet is told: the full list, then each change in order, however slow it is."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from controlplane.apiserver.joblets.replica_messages import Confirmed
from controlplane.apiserver.joblets.session_outbox import SessionOutbox
from controlplane.model.errors import Unavailable
from controlplane.model.fulfilment import TaskSpec
from controlplane.store import codec, keys
from controlplane.wire import payload
from controlplane.wire.v1 import joblets_pb2
from controlplane.wire.v1.joblets_pb2 import JobletMessage, ReplicaMessage
from tests.component.joblet_sessions.stage import PATIENCE_SECONDS, TARGET, Api, Stage


async def test_the_full_list_comes_before_synced(stage: Stage, api: Api) -> None:
    wanted = [await api.desire() for _ in range(3)]
    await api.desire(target="elsewhere")
    talk = await stage.a_joblet(api)
    assigned = await talk.synced()
    assert [assign.fulfilment.id for assign in assigned] == [fulfilment.id for fulfilment in wanted]
    first = assigned[0].fulfilment
    assert (first.target, first.tasks[0].job, first.tasks[0].attempt, first.want) == (TARGET, "render", 1, "run")
    assert first == wanted[0]
    assert assigned[0].revision > 0


async def test_an_assignment_carries_the_stored_report_and_its_revision(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    ack = await talk.report(fulfilment, "Running", 0)
    await api.cache.reached(ack.revision, PATIENCE_SECONDS)
    again = await stage.a_joblet(api, session=talk.session, highest_revision=ack.revision)
    (assign,) = await again.synced()
    assert assign.observed_revision == ack.observed_revision
    assert assign.observed is not None
    assert (assign.observed.phase, assign.observed.session) == ("Running", talk.session)


async def test_changes_are_assigned_and_withdrawn_as_they_happen(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    assert await talk.synced() == []
    fulfilment = await api.desire()
    kind, assign = await talk.next()
    assert (kind, assign.fulfilment.id) == ("assign", fulfilment.id)
    stop = msgspec.structs.replace(fulfilment, want="stop", reason="Cancelled")
    changed = await api.put(keys.desired(TARGET, fulfilment.id), codec.encode(stop))
    kind, assign = await talk.next()
    assert (kind, assign.fulfilment.want, assign.revision) == ("assign", "stop", changed)
    await api.withdraw(fulfilment)
    kind, withdraw = await talk.next()
    assert (kind, withdraw.id) == ("withdraw", fulfilment.id)
    assert withdraw.revision > changed


async def test_a_report_is_not_echoed(stage: Stage, api: Api) -> None:
    first = await api.desire()
    talk = await stage.a_joblet(api)
    await talk.synced()
    ack = await talk.report(first, "Running", 0)
    await api.cache.reached(ack.revision, PATIENCE_SECONDS)
    second = await api.desire()
    kind, assign = await talk.next()
    assert (kind, assign.fulfilment.id) == ("assign", second.id)


async def test_joblets_of_other_targets_hear_nothing_of_it(stage: Stage, api: Api) -> None:
    await api.a_target("edge-2")
    here, there = await stage.a_joblet(api), await stage.a_joblet(api, target="edge-2")
    await here.synced()
    await there.synced()
    await api.desire(target="edge-2")
    mine = await api.desire()
    assert (await here.next())[1].fulfilment.id == mine.id


async def test_a_value_that_cannot_be_read_is_stepped_over(stage: Stage, api: Api) -> None:
    await api.put(keys.desired(TARGET, "POISON"), b"not json")
    sound = await api.desire()
    talk = await stage.a_joblet(api)
    assert [assign.fulfilment.id for assign in await talk.synced()] == [sound.id]


async def test_what_waits_for_a_slow_joblet_is_bounded_by_what_it_has_to_run(stage: Stage, api: Api) -> None:
    outbox = SessionOutbox(TARGET, api.cache)
    batches = outbox.batches(joblets_pb2.Welcome())
    await anext(batches)
    fulfilment = await api.desire()
    for _ in range(1000):
        outbox.touch(fulfilment.id)
    batch = await anext(batches)
    assert [payload.fulfilment(message.assign.fulfilment) for message in batch.messages] == [fulfilment]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(batches), 0.05)


async def test_a_big_list_travels_in_messages_of_a_bounded_size(stage: Stage, api: Api) -> None:
    jobs = {"render": TaskSpec(environment={"SCENE": "r" * 300_000})}
    wanted = [await api.desire(jobs=jobs) for _ in range(8)]
    outbox = SessionOutbox(TARGET, api.cache)
    outbox.answer(Confirmed(7))
    sizes: list[int] = []
    seen: list[ReplicaMessage] = []
    async for batch in outbox.batches(joblets_pb2.Welcome()):
        sizes.append(batch.ByteSize())
        seen.extend(batch.messages)
        if seen[-1].WhichOneof("message") == "synced":
            break
    assert max(sizes) < 2 << 20
    kinds = [message.WhichOneof("message") for message in seen]
    assert kinds == ["welcome", "heartbeat_ack", *["assign"] * len(wanted), "synced"]


async def test_a_list_of_thousands_arrives_whole(stage: Stage, api: Api) -> None:
    wanted = {(await api.desire()).id for _ in range(1500)}
    talk = await stage.a_joblet(api)
    assert {assign.fulfilment.id for assign in await talk.synced()} == wanted


async def test_a_stopping_replica_sends_its_joblets_elsewhere(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    await api.server.stop()
    assert isinstance(await talk.refusal(), Unavailable)


async def test_what_came_with_the_hello_is_heard(stage: Stage, api: Api) -> None:
    talk = await stage.a_talk(api, JobletMessage(heartbeat=joblets_pb2.Heartbeat(number=5)))
    assert (await talk.until("heartbeat_ack")).number == 5


@pytest.mark.parametrize("poison", [b"{", b'{"kind":"Fulfilment"}', b"\xff\xfe"])
async def test_a_fulfilment_that_cannot_be_read_does_not_keep_the_others_away(
    stage: Stage, api: Api, poison: bytes
) -> None:
    bad = await api.desire()
    await api.put(keys.desired(TARGET, bad.id), poison)
    good = await api.desire()
    talk = await stage.a_joblet(api)
    assert [assign.fulfilment.id for assign in await talk.synced()] == [good.id]
