"""Leases: granted, renewed on one stream, revoked, and their keys gone with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import NotFound, Unavailable
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.lease import BlockingLease, Renewals
from controlplane.store.transaction import Item, put
from tests.etcd import Etcd
from tests.proxy import proxied

KEY = "/controlplane/inventory/t1/live"


@pytest.fixture
async def renewals(store: Store) -> AsyncIterator[Renewals]:
    made = Renewals(store.channels)
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_a_revoked_lease_takes_its_keys_with_it(store: Store) -> None:
    lease = await store.grant(60)
    await store.commit(Item(then=(put(KEY, b"", lease=lease),)))
    found = await store.get(KEY)
    assert found is not None
    assert found.lease == lease
    await store.revoke(lease)
    assert await store.get(KEY) is None


async def test_revoking_or_using_a_lease_that_is_gone_says_so(store: Store) -> None:
    lease = await store.grant(60)
    await store.revoke(lease)
    with pytest.raises(NotFound):
        await store.revoke(lease)
    with pytest.raises(NotFound):
        await store.commit(Item(then=(put(KEY, b"", lease=lease),)))


async def test_a_renewal_says_whether_the_lease_lives(store: Store, renewals: Renewals) -> None:
    alive, gone = await store.grant(60), await store.grant(60)
    await store.revoke(gone)
    answers = await asyncio.gather(*(renewals.renew(lease, 10) for lease in (alive, gone, alive)))
    assert answers == [True, False, True]


async def test_renewals_fail_while_etcd_is_away_and_go_on_when_it_is_back(
    store: Store, renewals: Renewals, etcd: Etcd
) -> None:
    lease = await store.grant(60)
    assert await renewals.renew(lease, 10)
    etcd.kill()
    with pytest.raises(Unavailable):
        await renewals.renew(lease, 1)
    etcd.start()
    async with asyncio.timeout(20):
        while True:
            with suppress(Unavailable):
                assert await renewals.renew(lease, 1)
                break


async def test_an_answer_that_nobody_waited_for_confirms_no_later_renewal(
    store: Store, renewals: Renewals, etcd: Etcd
) -> None:
    lease = await store.grant(60)
    assert await renewals.renew(lease, 10)
    etcd.pause()
    with pytest.raises(Unavailable):
        await renewals.renew(lease, 0.2)
    later = asyncio.create_task(renewals.renew(lease, 20))
    await asyncio.sleep(0)
    await asyncio.to_thread(etcd.resume)
    await store.revoke(lease)
    await later
    assert await renewals.renew(lease, 10) is False


async def test_a_thread_keeps_a_lease_by_blocking_calls(etcd: Etcd, store: Store) -> None:
    def keep() -> tuple[bool, bool]:
        leases = BlockingLease(EtcdOptions((etcd.endpoint,)))
        try:
            lease = leases.grant(60, timeout=5)
            before = leases.renew(lease, timeout=5)
            leases.revoke(lease, timeout=5)
            leases.revoke(lease, timeout=5)
            return before, leases.renew(lease, timeout=5)
        finally:
            leases.close()

    assert await asyncio.to_thread(keep) == (True, False)


async def test_renewals_leave_an_endpoint_that_keeps_its_connections_and_answers_nothing(etcd: Etcd) -> None:
    async with proxied(etcd.endpoint.removeprefix("http://")) as proxy:
        store = Store(EtcdOptions((proxy.url, etcd.endpoint)), SystemClock())
        renewals = Renewals(store.channels)
        running = asyncio.create_task(renewals.run())
        lease = await store.grant(60)
        assert await renewals.renew(lease, 10)
        proxy.hold()
        with pytest.raises(Unavailable):
            await renewals.renew(lease, 0.5)
        async with asyncio.timeout(20):
            while True:
                with suppress(Unavailable):
                    assert await renewals.renew(lease, 5)
                    break
        proxy.release()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await store.close()
