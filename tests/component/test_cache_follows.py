"""The cache equals a list at its own revision, whatever happened to its watch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from controlplane.cache.reflector import Delta, digest_of
from controlplane.cache.snapshot import Snapshot
from controlplane.model.errors import Unavailable
from controlplane.store import keys
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, delete, put
from tests.component.leader_stage import PATIENCE_SECONDS, Replica, following
from tests.etcd import Etcd
from tests.robustness.link import linked


def shown(snapshot: Snapshot) -> list[tuple[str, int, bytes]]:
    return sorted((entry.stored.key, entry.revision, entry.stored.value) for entry in snapshot.everything())


async def listed(store: Store, revision: int) -> list[tuple[str, int, bytes]]:
    return [
        (value.key, value.mod_revision, value.value)
        async for page in store.pages(revision=revision)
        for value in page.values
    ]


async def assert_equals_a_list(replica: Replica) -> None:
    snapshot = replica.cache.snapshot
    assert shown(snapshot) == await listed(replica.store, snapshot.revision)


async def burst(store: Store, count: int) -> int:
    """That many changes, puts and deletes of a twentieth as many keys; the last revision."""
    last = 0
    for start in range(0, count, 100):
        names = [keys.config("jobs", f"j{(start + at) % (count // 20)}") for at in range(100)]
        odd = start // 100 % 7 == 6
        last = (
            await store.commit(Item(then=tuple(delete(name) if odd else put(name, b"%d" % start) for name in names)))
        ).revision
    return last


async def test_after_a_burst_of_ten_thousand_changes_a_slow_listener_has_cost_nothing(replica: Replica) -> None:
    told: list[int] = []

    def slow(deltas: Sequence[Delta], _revision: int) -> None:
        told.extend(delta.revision for delta in deltas)
        time.sleep(0.02)

    replica.cache.subscribe(slow)
    last = await burst(replica.store, 10_000)
    await replica.cache.reached(last, PATIENCE_SECONDS)
    assert len(told) == 10_000
    assert told == sorted(told)
    await assert_equals_a_list(replica)
    revision, digest, count = await replica.cache.hash()
    assert (revision, count) == (last, len(await listed(replica.store, last)))
    async with following(replica.store.channels.options.endpoints[0], Replica) as other:
        assert await other.cache.hash() == (revision, digest, count)


async def test_a_digest_tells_pictures_apart_that_differ_in_one_revision(replica: Replica) -> None:
    await replica.write({keys.config("jobs", "a"): b"1", keys.config("jobs", "b"): b"1"})
    before = digest_of(replica.cache.snapshot)
    await replica.write({keys.config("jobs", "a"): b"1"})
    assert digest_of(replica.cache.snapshot) != before


async def test_an_old_snapshot_stays_as_it_was(replica: Replica) -> None:
    await replica.write({keys.config("jobs", "a"): b"1", keys.desired("t", "f"): b"1"})
    old = replica.cache.snapshot
    before = shown(old)
    await replica.write({keys.config("jobs", "a"): b"2", keys.desired("t", "f"): None, keys.desired("t", "g"): b"3"})
    assert shown(old) == before
    assert old.revision < replica.cache.snapshot.revision
    await assert_equals_a_list(replica)


async def test_a_cache_that_was_cut_off_over_a_compaction_lists_again_and_tells_the_difference(etcd: Etcd) -> None:
    async with (
        linked(etcd.endpoint) as link,
        following(link.url, Replica) as cut,
        following(etcd.endpoint, Replica) as other,
    ):
        await other.write({keys.config("jobs", name): b"1" for name in ("kept", "changed", "deleted")})
        await cut.cache.reached(other.cache.revision, PATIENCE_SECONDS)
        told: dict[str, bytes | None] = {}
        cut.cache.subscribe(
            lambda deltas, _revision: told.update(
                {delta.parts[0]: delta.new.stored.value if delta.new else None for delta in deltas}
            )
        )
        await link.refuse()
        await other.write({keys.config("jobs", "changed"): b"2", keys.config("jobs", "deleted"): None})
        await other.write({keys.config("jobs", "new"): b"2"})
        await other.store.compact(other.cache.revision)
        link.listen()
        await cut.cache.reached(other.cache.revision, PATIENCE_SECONDS)
        assert shown(cut.cache.snapshot) == shown(other.cache.snapshot)
        assert told == {"changed": b"2", "deleted": None, "new": b"2"}


async def test_every_change_is_told_once_and_in_order_across_a_restart_of_etcd(replica: Replica, etcd: Etcd) -> None:
    told: list[int] = []
    replica.cache.subscribe(lambda deltas, _revision: told.extend(delta.revision for delta in deltas))
    written = []
    for at in range(6):
        written.append(await replica.write({keys.config("jobs", f"j{at}"): b"1"}))
        if at % 2:
            await asyncio.to_thread(etcd.restart)
    assert told == written
    await assert_equals_a_list(replica)


async def test_waiting_for_a_revision_that_does_not_come_ends(replica: Replica) -> None:
    with pytest.raises(Unavailable):
        await replica.cache.reached(replica.cache.revision + 1, 0.05)
    await replica.write({keys.config("jobs", "a"): b"1"})


async def test_a_waiter_that_gave_up_does_not_hold_up_the_others(replica: Replica) -> None:
    target = replica.cache.revision + 1
    gives_up = asyncio.create_task(replica.cache.reached(target))
    stays = asyncio.create_task(replica.cache.reached(target))
    await asyncio.sleep(0)
    gives_up.cancel()
    await replica.write({keys.config("jobs", "a"): b"1"})
    await asyncio.wait_for(stays, PATIENCE_SECONDS)


async def test_a_wait_that_is_cancelled_in_the_moment_it_is_over_stays_cancelled(replica: Replica) -> None:
    target = replica.cache.revision + 1

    async def cancel_the_other() -> None:
        await replica.cache.reached(target)
        waits.cancel()

    first = asyncio.create_task(cancel_the_other())
    await asyncio.sleep(0)
    waits = asyncio.create_task(replica.cache.reached(target))
    await asyncio.sleep(0)
    await replica.write({keys.config("jobs", "a"): b"1"})
    await first
    with pytest.raises(asyncio.CancelledError):
        await waits
