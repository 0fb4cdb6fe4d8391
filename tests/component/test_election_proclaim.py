"""Writes with an unknown outcome: a leader proclaims itself anew, and etcd refuses what comes late."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.model import errors
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from tests.component.election_stage import PROOF, Replica, proof
from tests.etcd import Etcd
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
