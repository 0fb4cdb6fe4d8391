"""A target that returns: what is left of its old work is counted in its live record, on a real etcd."""

from __future__ import annotations

import asyncio

from controlplane.model.errors import NotFound
from controlplane.model.target import Live
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item
from controlplane.wire.v1 import joblets_pb2
from controlplane.wire.v1.joblets_pb2 import JobletMessage
from tests.component.joblet_sessions.stage import PATIENCE_SECONDS, TARGET, Api, Stage, Talk


async def tell(talk: Talk, number: int, leftovers: int | None) -> None:
    beat = joblets_pb2.Heartbeat(number=number, leftovers=leftovers)
    await talk.send(JobletMessage(heartbeat=beat))
    while (await talk.until("heartbeat_ack")).number != number:
        pass


async def recorded(api: Api, count: int) -> None:
    """Returns when the live record says so, as the replica's cache hears it."""
    heard = asyncio.Event()
    stop = api.cache.subscribe(lambda _deltas, _revision: heard.set())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while left(api) != count:
                await heard.wait()
                heard.clear()
    finally:
        stop()


def left(api: Api) -> int | None:
    live = api.cache.snapshot.live(TARGET)
    return live.leftovers if live is not None else None


async def revision_of(api: Api) -> int:
    found = await api.live()
    assert found is not None
    return found[0].mod_revision


async def test_all_that_lives_may_be_left_over_until_the_joblet_has_compared_it(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api, leftovers=3)
    await recorded(api, 3)
    await tell(talk, 1, None)
    assert left(api) == 3, "a beat that says nothing about it changes nothing"
    await tell(talk, 2, 2)
    await recorded(api, 2)
    await tell(talk, 3, 0)
    await recorded(api, 0)


async def test_what_does_not_change_is_not_written(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    before = await revision_of(api)
    for number in range(1, 6):
        await tell(talk, number, 0)
    assert await revision_of(api) == before


async def test_a_target_whose_session_never_ended_has_only_what_it_had_before(stage: Stage, api: Api) -> None:
    """A joblet that was killed and started again adopts its work; nothing of it was given to others."""
    talk = await stage.a_joblet(api, instance="life-1")
    await stage.a_joblet(api, instance="life-2", leftovers=9)
    assert left(api) == 0
    again = await stage.a_joblet(api, instance="life-3", leftovers=9)
    await tell(again, 1, 4)
    await recorded(api, 4)
    await stage.a_joblet(api, instance="life-4", leftovers=9)
    assert left(api) == 4
    assert talk.session


async def test_a_count_that_an_old_stream_wrote_late_is_mended_by_the_next_beat(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    found = await api.live()
    assert found is not None
    stored, live = found
    late = codec.encode(Live(**{name: getattr(live, name) for name in live.__struct_fields__} | {"leftovers": 7}))
    await api.store.commit(Item((), (transaction.put(stored.key, late, lease=stored.lease),)))
    await recorded(api, 7)
    await tell(talk, 1, 0)
    await recorded(api, 0)


async def test_the_list_holds_nothing_that_was_taken_before_the_session_began(stage: Stage, api: Api) -> None:
    """A replica that lags behind says welcome, and sends the list when it has caught up."""
    taken = await api.desire()
    kept = await api.desire()
    await api.fall_behind()
    await api.withdraw(taken)
    talk = await stage.a_joblet(api)
    listing = asyncio.create_task(talk.synced())
    await asyncio.sleep(0)
    assert not listing.done()
    await api.follow()
    assert [assigned.fulfilment.id for assigned in await listing] == [kept.id]


async def test_the_joblet_of_a_deleted_target_is_sent_away_and_its_session_ends(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    await api.store.commit(Item((), (transaction.delete(keys.config("targets", TARGET)),)))
    assert isinstance(await talk.refusal(), NotFound)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await api.live() is not None:
            await asyncio.sleep(0.01)
    again = await stage.a_talk(api)
    assert isinstance(await again.refusal(), NotFound)


async def test_the_joblet_of_a_deleted_target_may_still_report_what_it_runs(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    await talk.synced()
    await api.store.commit(Item((), (transaction.delete(keys.config("targets", TARGET)),)))
    ack = await talk.report(fulfilment, "Starting", 0)
    assert ack.code == ""
    await api.withdraw(fulfilment)
    assert isinstance(await talk.refusal(), NotFound)
