"""Writes with an unknown outcome: a leader proclaims itself anew, and etcd refuses what comes late."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.election.election_settings import ElectionSettings
from controlplane.election.held_leadership import Leadership
from controlplane.model import errors
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, Outcome, put
from tests.component.election_stage import PROOF, Replica, proof
from tests.etcd import Etcd, running_etcd
from tests.proxy import proxied


async def test_a_write_delayed_until_after_a_proclamation_is_refused(etcd: Etcd) -> None:
    async with proxied(etcd.endpoint) as proxy, Replica(etcd.endpoint, "a").running() as replica:
        leadership = await replica.terms.get()
        slow = Store(EtcdOptions((proxy.url,)), SystemClock())
        await slow.get(PROOF)
        proxy.hold(down=False)
        late = asyncio.create_task(slow.commit_group([proof("late")], fence=leadership.fence, timeout=30))
        before = leadership.fence
        await leadership.proclaim()
        assert leadership.fence.epoch == before.epoch
        assert leadership.fence.mod_revision > before.mod_revision
        proxy.release()
        with pytest.raises(errors.Deposed):
            await late
        assert await replica.store.get(PROOF) is None
        await leadership.commit([proof("in time")])
        assert not leadership.lost.is_set()
        await slow.close()


async def test_a_write_delayed_until_after_its_leader_was_followed_is_refused(etcd: Etcd) -> None:
    async with (
        AsyncExitStack() as stack,
        proxied(etcd.endpoint) as proxy,
        Replica(etcd.endpoint, "a").running() as first,
    ):
        leadership = await first.terms.get()
        second = await stack.enter_async_context(Replica(etcd.endpoint, "b").running())
        await second.queued()
        slow = Store(EtcdOptions((proxy.url,)), SystemClock())
        await slow.get(PROOF)
        proxy.hold(down=False)
        late = asyncio.create_task(slow.commit_group([proof("late")], fence=leadership.fence, timeout=30))
        await first.election.step_down()
        await second.terms.get()
        proxy.release()
        with pytest.raises(errors.Deposed):
            await late
        assert await second.store.get(PROOF) is None
        await slow.close()


async def test_a_leader_whose_write_was_not_answered_knows_it_and_goes_on(etcd: Etcd) -> None:
    outside = Replica(etcd.endpoint, "outside")
    async with proxied(etcd.endpoint) as proxy, Replica(proxy.url, "a").running() as replica, outside.watching():
        leadership = await replica.terms.get()
        before = leadership.fence
        proxy.hold(up=False)
        write = asyncio.create_task(leadership.commit([proof("unanswered")]))
        await outside.view.until(lambda: outside.view.value(PROOF) is not None)
        await proxy.cut()
        proxy.release()
        with pytest.raises(errors.OutcomeUnknown):
            await write
        assert leadership.fence.mod_revision > before.mod_revision
        assert replica.view.value(PROOF) == b"unanswered"
        await leadership.commit([proof("next")])


async def test_a_proclamation_that_was_not_answered_is_found_out(etcd: Etcd) -> None:
    outside = Replica(etcd.endpoint, "outside")
    async with proxied(etcd.endpoint) as proxy, Replica(proxy.url, "a").running() as replica, outside.watching():
        leadership = await replica.terms.get()
        proxy.hold(up=False)
        proclaiming = asyncio.create_task(leadership.proclaim())
        await outside.view.until(lambda: outside.view.candidates()[0].candidate.proclaimed == 1)
        await proxy.cut()
        proxy.release()
        await proclaiming
        assert leadership.fence.mod_revision == outside.view.candidates()[0].mod_revision
        await leadership.commit([proof("next")])


async def test_a_write_overtaken_by_a_proclamation_may_be_repeated(etcd: Etcd) -> None:
    async with Replica(etcd.endpoint, "a").running() as replica:
        leadership = await replica.terms.get()
        used = leadership.fence
        await leadership.proclaim()
        with pytest.raises(errors.Unavailable):
            await leadership.refused(used)
        assert not leadership.lost.is_set()


async def test_two_unknown_outcomes_of_one_fence_cost_one_proclamation(etcd: Etcd) -> None:
    async with Replica(etcd.endpoint, "a").running() as replica:
        leadership = await replica.terms.get()
        used = leadership.fence
        await asyncio.gather(leadership.proclaim(used), leadership.proclaim(used))
        assert leadership.candidate.proclaimed == 1


async def test_a_leader_whose_key_was_overwritten_cannot_proclaim(etcd: Etcd) -> None:
    async with Replica(etcd.endpoint, "a").running() as replica:
        leadership = await replica.terms.get()
        etcd.etcdctl("put", leadership.key, "junk")
        with pytest.raises(errors.Deposed):
            await leadership.proclaim()
        assert await replica.ended.get() is leadership
        assert (await replica.terms.get()).epoch > leadership.epoch


async def fill(store: Store) -> None:
    for number in range(1_000):
        await store.commit(Item(then=(put(f"/junk/{number % 10}", b"x" * 400_000),)))


async def test_a_leader_proclaims_itself_in_an_etcd_without_space(tmp_path: Path) -> None:
    with running_etcd(tmp_path / "small", ["--quota-backend-bytes=1000000"]) as etcd:
        async with Replica(etcd.endpoint, "a").running() as replica:
            leadership = await replica.terms.get()
            with pytest.raises(errors.Unavailable, match="space"):
                await fill(replica.store)
            before = leadership.fence
            await asyncio.wait_for(leadership.proclaim(), 20)
            assert leadership.fence.mod_revision > before.mod_revision
            await leadership.commit([proof("next")])
            assert not leadership.lost.is_set()


async def test_a_leader_that_cannot_proclaim_itself_for_a_leases_life_leaves(etcd: Etcd) -> None:
    """Its lease is renewed all the while: nobody else would end its term."""

    class Refusing(Store):
        async def commit_group(self, *_items: object, **_options: object) -> list[Outcome]:
            raise errors.Unavailable("etcd takes no writes")

    async with Replica(etcd.endpoint, "a", ElectionSettings(ttl_seconds=3)).running() as replica:
        own = (await replica.terms.get())._own
        refusing = Refusing(EtcdOptions((etcd.endpoint,)), SystemClock())
        settings = ElectionSettings(ttl_seconds=3)
        leadership = Leadership(
            refusing, replica.view, SystemClock(), own, deadline=lambda: time.monotonic() + 3, settings=settings
        )
        with pytest.raises(errors.Deposed, match="could not proclaim itself"):
            await asyncio.wait_for(leadership.proclaim(), 20)
        assert leadership.why == "unproclaimed"
        await refusing.close()
