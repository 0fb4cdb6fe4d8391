"""Reading: one key, and many at one revision."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import Compacted
from controlplane.store import kv
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, delete, put
from tests.etcd import Etcd
from tests.robustness.link import linked


async def fill(store: Store, count: int) -> None:
    names = [f"/controlplane/many/{at:06d}" for at in range(count)]
    await asyncio.gather(
        *(
            store.commit(Item(then=tuple(put(name, b"v") for name in names[start : start + 100])))
            for start in range(0, count, 100)
        )
    )


async def listed(store: Store, prefix: str, *, revision: int = 0) -> list[str]:
    return [value.key async for page in store.pages(prefix, revision=revision) for value in page.values]


async def test_a_key_comes_with_its_value_and_revisions(store: Store) -> None:
    first = await store.commit(Item(then=(put("/controlplane/a", b"1"),)))
    second = await store.commit(Item(then=(put("/controlplane/a", b"2"),)))
    value = await store.get("/controlplane/a")
    assert value is not None
    assert (value.value, value.create_revision, value.mod_revision) == (b"2", first.revision, second.revision)
    old = await store.get("/controlplane/a", revision=first.revision)
    assert old is not None
    assert old.value == b"1"
    assert await store.get("/controlplane/b") is None


async def test_many_pages_show_one_revision_whatever_changes_meanwhile(store: Store) -> None:
    count = 2 * kv.PAGE + 10
    await fill(store, count)
    keys: list[str] = []
    revisions = set()
    async for page in store.pages("/controlplane/many/"):
        keys.extend(value.key for value in page.values)
        revisions.add(page.revision)
        await store.commit(Item(then=(delete(f"/controlplane/many/{count - 1:06d}"),)))
        await store.commit(Item(then=(put(f"/controlplane/many/{count + len(keys):06d}", b"new"),)))
    assert keys == [f"/controlplane/many/{at:06d}" for at in range(count)]
    assert len(revisions) == 1


async def test_a_list_is_of_its_prefix_and_of_the_asked_revision(store: Store) -> None:
    await store.commit(
        Item(then=(put("/controlplane/a/1", b"v"), put("/controlplane0", b"v"), put("/controlplan", b"v")))
    )
    before = await store.revision()
    await store.commit(Item(then=(put("/controlplane/a/2", b"v"),)))
    assert await listed(store, "/controlplane/") == ["/controlplane/a/1", "/controlplane/a/2"]
    assert await listed(store, "/controlplane/", revision=before) == ["/controlplane/a/1"]


async def test_an_empty_list_still_tells_its_revision(store: Store) -> None:
    pages = [page async for page in store.pages("/controlplane/")]
    assert [(page.revision, page.values) for page in pages] == [(1, ())]


async def test_a_revision_that_is_compacted_away_is_told_apart(store: Store) -> None:
    old = (await store.commit(Item(then=(put("/controlplane/a", b"1"),)))).revision
    new = (await store.commit(Item(then=(put("/controlplane/a", b"2"),)))).revision
    await store.compact(new)
    with pytest.raises(Compacted):
        await store.get("/controlplane/a", revision=old)
    with pytest.raises(Compacted):
        await listed(store, "/controlplane/", revision=old)


async def test_a_page_holds_few_large_values_though_many_small_ones_came_before(store: Store) -> None:
    """Small values are listed many at a time; whoever lists large ones next must not get as many of those at once."""
    small = [f"/controlplane/config/jobs/{at:05d}" for at in range(3_000)]
    for start in range(0, len(small), 100):
        await store.commit(Item(then=tuple(put(name, b"v") for name in small[start : start + 100])))
    large = [f"/controlplane/config/orders/{at:05d}" for at in range(60)]
    for name in large:
        await store.commit(Item(then=(put(name, b"x" * 250_000),)))
    after = [f"/controlplane/cycles/{at:05d}/a" for at in range(20)]
    await store.commit(Item(then=tuple(put(name, b"v") for name in after)))
    pages = [page async for page in store.pages("/controlplane/")]
    assert [value.key for page in pages for value in page.values] == [*small, *large, *after]
    assert len({page.revision for page in pages}) == 1
    assert max(sum(len(value.value) for value in page.values) for page in pages) <= 2 * kv.PAGE_BYTES
    assert len(pages) < 60


async def test_a_page_that_takes_too_long_is_asked_for_again_with_fewer_keys(etcd: Etcd) -> None:
    """The link is so slow that sixteen large values do not come in time, while a few of them do."""
    async with linked(etcd.endpoint) as link:
        store = Store(EtcdOptions((link.url,), timeout_seconds=2.0), SystemClock())
        names = [f"/controlplane/config/orders/{at:05d}" for at in range(8)]
        for name in names:
            await store.commit(Item(then=(put(name, b"x" * 250_000),)))
        link.down.bytes_per_second = 800_000
        assert await asyncio.wait_for(listed(store, "/controlplane/"), 60) == names
        await store.close()
