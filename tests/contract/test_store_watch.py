"""The watch: every change once and in order, across restarts, fragments and compaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import Compacted
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, delete, put
from controlplane.store.watch import Change, WatchBatch, watch
from tests.etcd import Etcd, free_ports
from tests.proxy import proxied

PREFIX = "/controlplane/"


async def write(store: Store, *names: str, value: bytes = b"v") -> int:
    return (await store.commit(Item(then=tuple(put(f"{PREFIX}{name}", value) for name in names)))).revision


async def follow(batches: AsyncIterator[WatchBatch], until: int) -> list[Change]:
    """All changes up to that revision."""
    changes: list[Change] = []
    async with asyncio.timeout(60):
        async for batch in batches:
            assert batch.revision == batch.changes[-1].revision
            changes.extend(batch.changes)
            if batch.revision >= until:
                break
    return changes


async def test_a_watch_tells_everything_from_its_revision_on(store: Store) -> None:
    await write(store, "before")
    start = await write(store, "a", "b")
    await store.commit(Item(then=(delete(f"{PREFIX}a"),)))
    await write(store, "unseen", value=b"")
    last = await write(store, "c")
    async with aclosing(watch(store.channels, PREFIX, start)) as batches:
        changes = await follow(batches, last)
    told = [(change.key.removeprefix(PREFIX), change.revision - start, change.value is None) for change in changes]
    assert told == [("a", 0, False), ("b", 0, False), ("a", 1, True), ("unseen", 2, False), ("c", 3, False)]


async def test_keys_outside_of_the_prefix_are_not_told(store: Store) -> None:
    start = await store.revision() + 1
    await store.commit(Item(then=(put("/controlplane0", b""), put("/control", b""))))
    last = await write(store, "a")
    async with aclosing(watch(store.channels, PREFIX, start)) as batches:
        assert [change.key for change in await follow(batches, last)] == [f"{PREFIX}a"]


async def test_no_change_is_missing_or_told_twice_when_etcd_dies_and_comes_back(store: Store, etcd: Etcd) -> None:
    written: list[int] = []
    start = await store.revision() + 1
    async with aclosing(watch(store.channels, PREFIX, start)) as batches:
        for round_ in range(3):
            written.extend([await write(store, f"{round_}-{at}") for at in range(5)])
            if round_:
                await asyncio.to_thread(etcd.restart)
        following = asyncio.create_task(follow(batches, written[-1] + 1))
        await asyncio.to_thread(etcd.restart)
        written.append(await write(store, "last"))
        changes = await following
    assert [change.revision for change in changes] == written


async def test_a_response_in_fragments_is_told_as_one_batch(store: Store) -> None:
    """Changes of many revisions that a late watcher is sent at once are more than one message of etcd may hold."""
    start = await store.revision() + 1
    revisions = [await write(store, f"big/{at}/1", f"big/{at}/2", value=b"x" * 400_000) for at in range(8)]
    changes: list[Change] = []
    async with aclosing(watch(store.channels, PREFIX, start)) as batches:
        async with asyncio.timeout(60):
            async for batch in batches:
                in_batch = [change.revision for change in batch.changes]
                assert all(in_batch.count(revision) == 2 for revision in in_batch)
                changes.extend(batch.changes)
                if batch.revision >= revisions[-1]:
                    break
    assert [change.revision for change in changes] == [revision for revision in revisions for _ in range(2)]
    assert all(change.value is not None and len(change.value.value) == 400_000 for change in changes)


async def test_watching_from_a_compacted_revision_asks_for_a_new_list(store: Store) -> None:
    old = await write(store, "a")
    new = await write(store, "b")
    await store.compact(new)
    async with aclosing(watch(store.channels, PREFIX, old)) as batches:
        with pytest.raises(Compacted):
            await asyncio.wait_for(anext(batches), 20)


async def test_a_watcher_that_was_cut_off_over_a_compaction_asks_for_a_new_list(store: Store, etcd: Etcd) -> None:
    first = await write(store, "a")
    async with aclosing(watch(store.channels, PREFIX, first)) as batches:
        assert (await asyncio.wait_for(anext(batches), 20)).revision == first
        await asyncio.to_thread(etcd.restart)
        # Nobody reads the watch, so it has not resumed when its place is compacted away.
        await write(store, "b")
        await store.compact(await write(store, "c"))
        with pytest.raises(Compacted):
            await follow(batches, first + 1_000_000)


async def test_a_stream_on_which_nothing_changes_still_gives_signs_of_life(store: Store) -> None:
    start = await store.revision() + 1
    heard: asyncio.Queue[None] = asyncio.Queue()
    async with aclosing(watch(store.channels, PREFIX, start, lambda: heard.put_nowait(None))) as batches:
        following = asyncio.create_task(follow(batches, start))
        async with asyncio.timeout(30):
            await heard.get()
            await heard.get()  # the answer to a request for progress: nothing has changed yet
            await write(store, "a")
            assert [change.key for change in await following] == [f"{PREFIX}a"]


async def test_a_dead_endpoint_is_left_for_the_next(etcd: Etcd) -> None:
    (port,) = free_ports(1)
    store = Store(EtcdOptions((f"http://127.0.0.1:{port}", etcd.endpoint)), SystemClock())
    revision = await write(store, "a")
    async with aclosing(watch(store.channels, PREFIX, revision)) as batches:
        assert (await asyncio.wait_for(anext(batches), 20)).revision == revision
    await store.close()


async def test_a_stream_that_stays_silent_is_left_for_the_next_endpoint(etcd: Etcd) -> None:
    """The first endpoint keeps its connections and says nothing; only a stream over the second can tell the change."""
    async with proxied(etcd.endpoint.removeprefix("http://")) as proxy:
        store = Store(EtcdOptions((proxy.url, etcd.endpoint)), SystemClock())
        writer = Store(EtcdOptions((etcd.endpoint,)), SystemClock())
        first = await write(writer, "a")
        async with aclosing(watch(store.channels, PREFIX, first)) as batches:
            await follow(batches, first)
            proxy.hold()
            last = await write(writer, "b")
            assert [change.key for change in await follow(batches, last)] == [f"{PREFIX}b"]
        proxy.release()
        await store.close()
        await writer.close()
