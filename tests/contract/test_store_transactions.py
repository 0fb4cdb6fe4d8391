"""Transactions: compares, groups, fences, limits, as etcd itself judges them."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.model.errors import Broken, Deposed, LimitExceeded
from controlplane.store.kv import Store
from controlplane.store.transaction import (
    MAX_BYTES,
    MAX_OPERATIONS,
    Fence,
    Item,
    absent,
    create_item,
    delete,
    get,
    lease_is,
    mod_is,
    nothing_below,
    present,
    put,
    unchanged_below,
)
from tests.prefixes import delete_prefix

A, B, LEADER = "/controlplane/a", "/controlplane/b", "/controlplane/election/1"


async def value(store: Store, key: str) -> bytes | None:
    found = await store.get(key)
    return found.value if found is not None else None


async def lead(store: Store) -> Fence:
    revision = (await store.commit(Item(then=(put(LEADER, b"me"),)))).revision
    return Fence(LEADER, epoch=revision, mod_revision=revision)


async def test_a_refused_compare_changes_nothing_and_returns_what_the_gets_found(store: Store) -> None:
    await store.commit(Item(then=(put(A, b"1"),)))
    refused = await store.commit(Item((absent(A),), (put(A, b"2"), put(B, b"2")), (get(A), get(B))))
    assert not refused.succeeded
    assert [found.value if found else None for found in refused.found] == [b"1", None]
    assert (await value(store, A), await value(store, B)) == (b"1", None)


async def test_presence_absence_revision_and_lease_are_compared(store: Store) -> None:
    lease = await store.grant(60)
    made = await store.commit(Item(then=(put(A, b"1", lease=lease),)))
    holds = [present(A), absent(B), mod_is(A, made.revision), mod_is(B, 0), lease_is(A, lease)]
    fails = [present(B), absent(A), mod_is(A, made.revision - 1), mod_is(A, 0), lease_is(A, lease + 1)]
    for compare in holds:
        assert (await store.commit(Item((compare,)))).succeeded
    for compare in fails:
        assert not (await store.commit(Item((compare,)))).succeeded


async def test_all_that_is_below_a_prefix_is_compared_at_once(store: Store) -> None:
    first = (await store.commit(Item(then=(put("/p/a", b"1"), put("/q", b"1"))))).revision
    second = (await store.commit(Item(then=(put("/p/b", b"1"),)))).revision
    holds = [nothing_below("/n/"), nothing_below("/p/a/"), unchanged_below("/p/", second), unchanged_below("/n/", 0)]
    fails = [nothing_below("/p/"), unchanged_below("/p/", first)]
    for compare in holds:
        assert (await store.commit(Item((compare,)))).succeeded
    for compare in fails:
        assert not (await store.commit(Item((compare,)))).succeeded
    await store.commit(Item(then=(delete("/p/a"), delete("/p/b"))))
    assert (await store.commit(Item((nothing_below("/p/"),)))).succeeded


async def test_items_of_a_group_have_their_own_fates(store: Store) -> None:
    await store.commit(Item(then=(put(A, b"old"),)))
    outcomes = await store.commit_group(
        [
            Item((absent(A),), (put(A, b"new"),), (get(A),)),
            Item((absent(B),), (put(B, b"new"),)),
            Item(then=(put("/c", b""),)),
        ]
    )
    assert [outcome.succeeded for outcome in outcomes] == [False, True, True]
    assert [found.value for found in outcomes[0].found if found] == [b"old"]
    assert (await value(store, A), await value(store, B)) == (b"old", b"new")
    assert len({outcome.revision for outcome in outcomes}) == 1


@pytest.mark.parametrize("there", [(), (1,), (0, 1, 2)])
async def test_new_keys_of_a_group_are_put_whichever_of_them_are_there_already(
    store: Store, there: tuple[int, ...]
) -> None:
    names = [f"/controlplane/{at}" for at in range(3)]
    for at in there:
        await store.commit(Item(then=(put(names[at], b"old"),)))
    before = await store.revision()
    outcomes = await store.commit_group([create_item(name, b"new") for name in names])
    assert [outcome.succeeded for outcome in outcomes] == [at not in there for at in range(3)]
    assert {outcome.revision for outcome in outcomes} == {before + (len(there) < 3)}
    for at, (name, outcome) in enumerate(zip(names, outcomes, strict=True)):
        assert await value(store, name) == (b"old" if at in there else b"new")
        assert [found.value if found else None for found in outcome.found] == ([b"old"] if at in there else [])


async def test_a_group_of_new_keys_has_its_limits(store: Store) -> None:
    with pytest.raises(LimitExceeded):
        await store.commit_group([create_item(f"/controlplane/{at}", b"") for at in range(MAX_OPERATIONS)])
    with pytest.raises(LimitExceeded):
        await store.commit_group([create_item(f"/controlplane/{at}", b"x" * (MAX_BYTES // 2)) for at in range(3)])
    assert await value(store, "/controlplane/0") is None


async def test_all_compares_of_a_group_see_the_state_before_it(store: Store) -> None:
    outcomes = await store.commit_group([Item((absent(A),), (put(A, b"1"),)), Item((absent(A),), (put(B, b"1"),))])
    assert [outcome.succeeded for outcome in outcomes] == [True, True]


async def test_one_key_written_by_two_items_refuses_the_whole_group(store: Store) -> None:
    with pytest.raises(Broken):
        await store.commit_group([Item(then=(put(A, b"1"),)), Item(then=(put(B, b"1"),)), Item(then=(put(A, b"2"),))])
    with pytest.raises(Broken):
        await store.commit(Item(then=(put(A, b"1"), delete(A))))
    assert (await value(store, A), await value(store, B)) == (None, None)


async def test_as_much_as_the_limits_allow_passes(store: Store) -> None:
    flat = Item(then=tuple(put(f"{A}/{at}", b"x" * 7000) for at in range(MAX_OPERATIONS)))
    assert (await store.commit(flat)).succeeded
    group = [Item(then=tuple(put(f"{B}/{n}/{at}", b"x") for at in range(28))) for n in range(100)]
    assert all(outcome.succeeded for outcome in await store.commit_group(group))


async def test_what_is_above_the_limits_is_refused_and_nothing_of_it_is_sent(store: Store) -> None:
    before = await store.revision()
    many = Item(then=tuple(put(f"{A}/{at}", b"x") for at in range(MAX_OPERATIONS + 1)))
    big = Item(then=(put(A, b"x" * MAX_BYTES),))
    for item in (many, big):
        with pytest.raises(LimitExceeded):
            await store.commit(item)
    half = b"x" * (MAX_BYTES // 2)
    with pytest.raises(LimitExceeded):
        await store.commit_group([Item(then=(put(A, half),)), Item(then=(put(B, half),))])
    assert await store.revision() == before


async def test_a_prefix_is_deleted_and_its_neighbours_stay(store: Store) -> None:
    await store.commit(Item(then=tuple(put(key, b"") for key in ("/p/a", "/p/b", "/p0", "/o"))))
    await store.commit(Item(then=(delete_prefix("/p/"),)))
    assert [await value(store, key) for key in ("/p/a", "/p/b", "/p0", "/o")] == [None, None, b"", b""]


async def test_a_fenced_group_happens_while_its_leader_leads(store: Store) -> None:
    outcomes = await store.commit_group([Item(then=(put(A, b"1"),))], fence=await lead(store))
    assert outcomes[0].succeeded


async def test_a_deposed_leaders_group_is_refused_whole(store: Store) -> None:
    fence = await lead(store)
    await store.commit(Item(then=(delete(LEADER),)))
    items = [Item(then=(put(A, b"1"),)), Item((absent(B),), (put(B, b"1"),))]
    for _ in range(2):
        with pytest.raises(Deposed):
            await store.commit_group(items, fence=fence)
        await lead(store)
    assert (await value(store, A), await value(store, B)) == (None, None)


async def test_a_leader_that_rewrote_its_key_cannot_be_overtaken_by_its_own_older_write(store: Store) -> None:
    fence = await lead(store)
    rewritten = await store.commit(Item((fence.compare(),), (put(LEADER, b"me again"),)))
    with pytest.raises(Deposed):
        await store.commit_group([Item(then=(put(A, b"late"),))], fence=fence)
    renewed = Fence(LEADER, fence.epoch, rewritten.revision)
    await store.commit_group([Item(then=(put(A, b"in time"),))], fence=renewed)
    assert await value(store, A) == b"in time"


async def test_of_writers_that_compare_one_revision_exactly_one_wins(store: Store) -> None:
    made = await store.commit(Item(then=(put(A, b"0"),)))
    items = [Item((mod_is(A, made.revision),), (put(A, str(at).encode()),)) for at in range(20)]
    outcomes = await asyncio.gather(*(store.commit(item) for item in items))
    assert sum(outcome.succeeded for outcome in outcomes) == 1
