"""How old a cache is, and that neither a member left behind nor somebody else's keys make it stand still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aetcd import rpc

from controlplane.aio.clock import SystemClock
from controlplane.cache.freshness import STALE_SECONDS
from controlplane.model.errors import Unavailable
from controlplane.store import keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, put
from tests.component.leader_stage import PATIENCE_SECONDS, Replica, following
from tests.component.test_cache_follows import assert_equals_a_list
from tests.etcd import Etcd
from tests.robustness.peers import Peers, linked_peers


@pytest.fixture
async def peers(tmp_path: Path) -> AsyncIterator[Peers]:
    async with linked_peers(tmp_path / "members") as started:
        yield started


async def put_foreign(store: Store, key: str = "/registry/somebody/else") -> int:
    request = rpc.PutRequest(key=key.encode(), value=b"x")
    answer = await store.channels.write(lambda channel, left: rpc.KVStub(channel).Put(request, timeout=left))
    return int(answer.header.revision)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():
            await asyncio.sleep(0.02)


async def test_a_revision_of_somebody_elses_key_is_reached(replica: Replica) -> None:
    await replica.write({keys.config("jobs", "a"): b"1"})
    for _ in range(3):
        foreign = await put_foreign(replica.store)
        assert replica.cache.revision < foreign
        await replica.cache.reached(foreign, 3.0)
    await assert_equals_a_list(replica)


async def test_no_change_is_passed_over_among_the_keys_of_others(replica: Replica) -> None:
    """What is waited for with a revision must hold what was written before it, whoever wrote in between."""
    for number in range(40):
        await replica.store.commit_group([put_own(number)])
        head = await put_foreign(replica.store)
        await replica.cache.reached(head, PATIENCE_SECONDS)
        entry = replica.cache.snapshot.get(keys.JOBS, "a")
        assert entry is not None
        assert entry.stored.value == b"%d" % number
    await assert_equals_a_list(replica)


def put_own(number: int) -> Item:
    return Item(then=(put(keys.config("jobs", "a"), b"%d" % number),))


async def test_waiting_for_a_revision_that_etcd_does_not_have_writes_nothing(replica: Replica) -> None:
    head = await replica.store.revision()
    with pytest.raises(Unavailable, match="has not reached"):
        await replica.cache.reached(2**62, 1.0)
    assert await replica.store.revision() == head


async def test_a_cache_that_follows_is_as_old_as_the_last_question(replica: Replica) -> None:
    await asyncio.sleep(STALE_SECONDS / 2)
    assert replica.cache.age_seconds < STALE_SECONDS / 2
    assert not replica.cache.is_stale


async def test_a_cache_without_etcd_grows_old_fails_waits_at_once_and_recovers(replica: Replica, etcd: Etcd) -> None:
    etcd.pause()
    try:
        early = asyncio.create_task(replica.cache.reached(replica.cache.revision + 1, PATIENCE_SECONDS))
        await asyncio.wait_for(replica.cache.stale(), PATIENCE_SECONDS)
        assert replica.cache.age_seconds > STALE_SECONDS
        with pytest.raises(Unavailable, match="s old"):
            await early
        began = time.monotonic()
        with pytest.raises(Unavailable, match="s old"):
            await replica.cache.reached(replica.cache.revision + 1, PATIENCE_SECONDS)
        assert time.monotonic() - began < 1.0
    finally:
        etcd.resume()
    await until(lambda: not replica.cache.is_stale)
    await replica.write({keys.config("jobs", "a"): b"1"})


async def test_a_cache_leaves_a_member_that_lost_its_peers(peers: Peers) -> None:
    leading = await asyncio.to_thread(peers.etcd.leading)
    member = peers.choose(next(other for other in peers.etcd.members if other is not leading))
    writer = Store(EtcdOptions(tuple(peers.etcd.endpoint.split(","))), SystemClock())
    async with following(f"{member.endpoint},{peers.etcd.endpoint}", Replica) as replica:
        await peers.isolate(member)
        written = (await writer.commit_group([put_own(1)]))[0].revision
        await until(lambda: replica.cache.revision >= written)
        await until(lambda: replica.cache.age_seconds < STALE_SECONDS)
    await writer.close()


async def test_a_cache_that_knows_only_a_member_without_peers_is_stale(peers: Peers) -> None:
    leading = await asyncio.to_thread(peers.etcd.leading)
    member = peers.choose(next(other for other in peers.etcd.members if other is not leading))
    writer = Store(EtcdOptions(tuple(peers.etcd.endpoint.split(","))), SystemClock())
    async with following(member.endpoint, Replica) as replica:
        await peers.isolate(member)
        written = (await writer.commit_group([put_own(1)]))[0].revision
        await asyncio.wait_for(replica.cache.stale(), PATIENCE_SECONDS)
        with pytest.raises(Unavailable, match="s old"):
            await replica.cache.reached(written, PATIENCE_SECONDS)
        peers.heal()
        await until(lambda: not replica.cache.is_stale)
        await replica.cache.reached(written, PATIENCE_SECONDS)
    await writer.close()
