"""What a failed call means: it certainly did not apply, or nobody knows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import OutcomeUnknown, Unavailable
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, put
from tests.etcd import Etcd, free_ports, running_etcd

KEY = "/controlplane/a"
WRITE = Item(then=(put(KEY, b"1"),))
Opening = Callable[..., Store]


@pytest.fixture
async def opening() -> AsyncIterator[Opening]:
    """Opens stores with a short deadline, and closes them."""
    opened: list[Store] = []

    def open_store(*endpoints: str, timeout_seconds: float = 1.0) -> Store:
        opened.append(Store(EtcdOptions(endpoints, timeout_seconds=timeout_seconds), SystemClock()))
        return opened[-1]

    yield open_store
    for store in opened:
        await store.close()


async def fill(store: Store) -> None:
    """Writes far beyond the quota: etcd looks at the size of what it has flushed, some ten of these writes behind."""
    for at in range(1_000):
        await store.commit(Item(then=(put(f"{KEY}/{at % 10}", b"x" * 400_000),)))


def nobody_there() -> str:
    return f"http://127.0.0.1:{free_ports(1)[0]}"


async def test_where_nobody_listens_a_write_certainly_did_not_happen(opening: Opening) -> None:
    store = opening(nobody_there())
    with pytest.raises(Unavailable):
        await store.commit(WRITE)
    with pytest.raises(Unavailable):
        await store.get(KEY)


async def test_an_etcd_that_died_certainly_takes_no_write(etcd: Etcd, opening: Opening) -> None:
    store = opening(etcd.endpoint)
    await store.commit(WRITE)
    etcd.kill()
    with pytest.raises((Unavailable, OutcomeUnknown)):
        await store.get(KEY)
    with pytest.raises(Unavailable):
        await store.commit(WRITE)


async def test_the_outcome_of_a_write_that_a_stopped_etcd_does_not_answer_is_unknown(
    etcd: Etcd, opening: Opening
) -> None:
    store = opening(etcd.endpoint)
    before = (await store.commit(WRITE)).revision
    etcd.pause()
    try:
        with pytest.raises(OutcomeUnknown):
            await store.commit(WRITE)
    finally:
        etcd.resume()
    # It may happen still: that is why nobody may conclude from its absence.
    assert await store.revision() >= before


async def test_a_read_of_a_stopped_etcd_has_no_effect_and_is_unavailable(etcd: Etcd, opening: Opening) -> None:
    store = opening(etcd.endpoint)
    await store.commit(WRITE)
    etcd.pause()
    try:
        with pytest.raises(Unavailable):
            await store.get(KEY)
    finally:
        etcd.resume()


async def test_with_its_first_endpoint_dead_a_store_reads_and_writes_through_the_next(
    etcd: Etcd, opening: Opening
) -> None:
    store = opening(nobody_there(), etcd.endpoint, timeout_seconds=10)
    await store.commit(WRITE)
    found = await store.get(KEY)
    assert found is not None
    assert found.value == b"1"


async def test_an_etcd_that_comes_back_is_used_again(etcd: Etcd, opening: Opening) -> None:
    store = opening(etcd.endpoint, timeout_seconds=20)
    await store.commit(WRITE)
    etcd.restart()
    assert await store.get(KEY) is not None
    assert (await store.commit(WRITE)).succeeded


async def test_an_etcd_without_space_refuses_writes_as_not_applied_and_answers_reads(
    tmp_path: Path, opening: Opening
) -> None:
    with running_etcd(tmp_path / "small", ["--quota-backend-bytes=1000000"]) as etcd:
        store = opening(etcd.endpoint, timeout_seconds=5)
        with pytest.raises(Unavailable, match="space"):
            await fill(store)
        assert await store.get(f"{KEY}/0") is not None
