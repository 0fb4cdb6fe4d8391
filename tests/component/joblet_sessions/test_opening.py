"""Who may speak for a target: sessions opened, moved, taken over, refused, kept alive and let go."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.model.errors import AlreadyExists, Invalid, NotFound, StaleAttempt, Unavailable
from controlplane.store import keys
from tests.component.joblet_sessions.stage import PATIENCE_SECONDS, SECRET, TARGET, Api, Stage, a_hello


async def live_gone(api: Api) -> None:
    """Returns when the live key of the target was deleted, as the replica's cache hears it."""
    gone = asyncio.Event()
    stop = api.cache.subscribe(
        lambda deltas, _: (
            gone.set() if any(delta.parts == (TARGET, "live") and not delta.new for delta in deltas) else None
        )
    )
    try:
        if api.cache.snapshot.get(keys.INVENTORY, TARGET, "live") is not None:
            await gone.wait()
    finally:
        stop()


async def test_a_joblet_is_welcomed_with_the_lease_of_its_live_key(stage: Stage, api: Api) -> None:
    talk = await stage.a_talk(api)
    welcome = await talk.until("welcome")
    found = await api.live()
    assert found is not None
    stored, live = found
    assert welcome.session == f"{stored.lease:x}" == live.session
    assert (welcome.lease_seconds, welcome.heartbeat_seconds, welcome.kill_grace_seconds) == (6, 1, 2)
    assert welcome.replica == "replica-1"
    assert (live.target, live.instance, live.driver, live.capacity) == (TARGET, "life-1", "simulated", {"cpu": 4})
    assert (live.lease_seconds, live.stop_within) == (6, 2)


async def test_only_the_digest_of_the_secret_is_stored(stage: Stage, api: Api) -> None:
    await stage.a_joblet(api)
    found = await api.live()
    assert found is not None
    assert len(found[1].secret_digest) == 64
    assert SECRET.encode() not in found[0].value


async def test_an_unknown_target_is_refused(stage: Stage, api: Api) -> None:
    talk = await stage.a_talk(api, target="nowhere")
    assert isinstance(await talk.refusal(), NotFound)
    assert await api.store.get(keys.live("nowhere")) is None


async def test_a_target_that_the_cache_does_not_know_yet_is_found_in_etcd(stage: Stage, api: Api) -> None:
    await api.fall_behind()
    await api.a_target("edge-2")
    assert (await stage.a_joblet(api, target="edge-2")).session


async def test_a_second_joblet_is_refused_and_told_who_holds_the_target(stage: Stage, api: Api) -> None:
    first = await stage.a_joblet(api, instance="the-first")
    before = await api.live()
    second = await stage.a_talk(api, instance="the-second", instance_secret="another secret")
    refusal = await second.refusal()
    assert isinstance(refusal, AlreadyExists)
    assert "the-first" in str(refusal)
    assert await api.live() == before
    await first.beat(1)


async def test_a_second_joblet_is_refused_by_another_replica_too(stage: Stage, api: Api) -> None:
    await stage.a_joblet(api)
    other = await stage.an_api()
    second = await stage.a_talk(other, instance="life-2", instance_secret="another secret")
    assert isinstance(await second.refusal(), AlreadyExists)


async def test_of_many_joblets_that_come_at_once_one_is_welcomed(stage: Stage, api: Api) -> None:
    other = await stage.an_api()
    talks = [
        await stage.a_talk(replica, instance=f"life-{n}", instance_secret=f"secret-{n}")
        for n, replica in enumerate((api, other, api, other, api))
    ]
    kinds = await asyncio.gather(*(talk.until("welcome") for talk in talks), return_exceptions=True)
    assert sum(not isinstance(kind, BaseException) for kind in kinds) == 1


async def test_the_same_secret_takes_over_at_once(stage: Stage, api: Api) -> None:
    old = await stage.a_joblet(api, instance="life-1")
    new = await stage.a_joblet(api, instance="life-2")
    assert new.session != old.session
    assert isinstance(await old.refusal(), (StaleAttempt, Unavailable))
    found = await api.live()
    assert found is not None
    assert (f"{found[0].lease:x}", found[1].instance) == (new.session, "life-2")
    await new.beat(1)
    assert not await api.renewals.renew(int(old.session, 16), PATIENCE_SECONDS), "the old lease was not revoked"


async def test_a_take_over_at_another_replica_ends_the_old_stream(stage: Stage, api: Api) -> None:
    old = await stage.a_joblet(api, instance="life-1")
    await stage.a_joblet(await stage.an_api(), instance="life-2")
    assert isinstance(await old.refusal(), StaleAttempt)


async def test_a_joblet_keeps_its_session_when_it_changes_replicas(stage: Stage, api: Api) -> None:
    first = await stage.a_joblet(api)
    before = await api.live()
    second = await stage.a_joblet(await stage.an_api(), session=first.session)
    assert second.session == first.session
    assert await api.live() == before
    await second.beat(1)


async def test_a_session_of_another_life_is_not_gone_on_with(stage: Stage, api: Api) -> None:
    first = await stage.a_joblet(api, instance="life-1")
    second = await stage.a_joblet(api, instance="life-2", session=first.session)
    assert second.session != first.session


async def test_a_joblet_whose_welcome_was_lost_gets_the_same_session(stage: Stage, api: Api) -> None:
    first = await stage.a_joblet(api, instance="life-1")
    second = await stage.a_joblet(await stage.an_api(), instance="life-1", session="")
    assert second.session == first.session


async def test_a_replica_that_has_not_heard_of_a_session_does_not_begin_another(stage: Stage, api: Api) -> None:
    behind = await stage.an_api()
    await behind.fall_behind()
    await stage.a_joblet(api)
    second = await stage.a_talk(behind, instance="life-2", instance_secret="another secret")
    assert isinstance(await second.refusal(), AlreadyExists)


async def test_a_changed_capacity_is_written_into_the_same_session(stage: Stage, api: Api) -> None:
    first = await stage.a_joblet(api)
    second = await stage.a_joblet(api, session=first.session, capacity={"cpu": 8})
    found = await api.live()
    assert found is not None
    assert second.session == first.session == f"{found[0].lease:x}"
    assert found[1].capacity == {"cpu": 8}
    await second.beat(1)


async def test_changed_times_begin_a_new_session(stage: Stage, api: Api) -> None:
    first = await stage.a_joblet(api)
    await api.set(joblet_lease=20)
    talk = await stage.a_talk(api, session=first.session)
    welcome = await talk.until("welcome")
    assert welcome.session != first.session
    assert welcome.lease_seconds == 20


async def test_a_newer_stream_of_the_same_session_ends_the_older_one(stage: Stage, api: Api) -> None:
    first = await stage.a_joblet(api)
    second = await stage.a_joblet(api, session=first.session)
    assert isinstance(await first.refusal(), Unavailable)
    await second.beat(1)


async def test_a_replica_that_is_behind_sends_the_joblet_elsewhere(stage: Stage, api: Api) -> None:
    talk = await stage.a_talk(api, highest_revision=api.cache.revision + 1)
    assert isinstance(await talk.refusal(), Unavailable)
    assert await api.live() is None


async def test_heartbeats_keep_the_session_and_silence_lets_it_go(stage: Stage, api: Api) -> None:
    await api.set(joblet_lease=2)
    talk = await stage.a_joblet(api)
    gone = asyncio.create_task(live_gone(api))
    for number in range(1, 21):
        await talk.beat(number)
        done, _ = await asyncio.wait({gone}, timeout=0.25)
        assert not done, "the session ended although it was confirmed"
    async with asyncio.timeout(PATIENCE_SECONDS):
        await gone
    assert isinstance(await talk.refusal(), (StaleAttempt, Unavailable))
    other = await stage.a_joblet(api, instance="life-9", instance_secret="another secret")
    assert other.session != talk.session


async def test_a_revoked_lease_ends_the_stream(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    await api.store.revoke(int(talk.session, 16))
    assert isinstance(await talk.refusal(), StaleAttempt)


async def test_a_heartbeat_for_a_lease_that_is_gone_ends_the_stream(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    await api.fall_behind()
    await api.store.revoke(int(talk.session, 16))
    with pytest.raises(Exception, match="is over"):
        await talk.beat(1)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"instance_secret": ""}, "instance_secret"),
        ({"instance": ""}, "instance"),
        ({"target": "a/b"}, "target"),
        ({"capacity": {"cpu": -1}}, "capacity.cpu"),
        ({"capacity": {"cpu": float("nan")}}, "capacity.cpu"),
        ({"version": "v" * 1000}, "version"),
    ],
)
async def test_a_bad_hello_is_refused_by_its_field(
    stage: Stage, api: Api, fields: dict[str, object], field: str
) -> None:
    refusal = await (await stage.a_talk(api, **fields)).refusal()
    assert isinstance(refusal, Invalid)
    assert refusal.field == field
    assert await api.live() is None


async def test_a_second_hello_ends_the_stream(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    await talk.send(a_hello())
    assert isinstance(await talk.refusal(), Invalid)


async def test_a_live_key_that_cannot_be_read_is_named(stage: Stage, api: Api) -> None:
    await api.put(keys.live(TARGET), b"not json")
    refusal = await (await stage.a_talk(api)).refusal()
    assert isinstance(refusal, AlreadyExists)
    assert keys.live(TARGET) in str(refusal)
