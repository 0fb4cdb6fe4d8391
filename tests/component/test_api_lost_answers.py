"""A write whose answer is lost: it happened, the replica does not know, and still nothing happens twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Any

import pytest

from controlplane.apiserver.commands.group_writer import GroupWriter
from controlplane.model.errors import OutcomeUnknown
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, Outcome
from controlplane.wire.v1 import cluster_pb2, common_pb2, jobs_pb2, orders_pb2
from tests.component.api_stage import Api, an_api, an_order
from tests.etcd import Etcd
from tests.proxy import Proxy, proxied


@dataclass
class Stage:
    """`cut_off` speaks to etcd through a proxy; `witness` sees what really happens."""

    proxy: Proxy
    cut_off: Api
    witness: Api

    async def losing_the_answer(self, call: Awaitable[Any], watch: Any) -> Any:
        """Sends the call while etcd's answers are held; when its effect is there, they are lost for good."""
        self.proxy.hold(up=False, down=True)
        sent = asyncio.ensure_future(call)
        await watch.read()
        await self.proxy.cut()
        self.proxy.release()
        return await sent


@pytest.fixture
async def stage(etcd: Etcd) -> AsyncIterator[Stage]:
    async with proxied(etcd.endpoint) as proxy, an_api(proxy.url) as cut_off, an_api(etcd.endpoint) as witness:
        yield Stage(proxy, cut_off, witness)


async def after_sync(watch: Any) -> Any:
    while (await watch.read()).type != "sync":
        pass
    return watch


async def test_an_order_stays_one_order_also_without_an_identity_of_its_own(stage: Stage) -> None:
    watch = await after_sync(stage.witness.orders.Watch(common_pb2.WatchRequest()))
    answer = await stage.losing_the_answer(stage.cut_off.orders.Submit(an_order()), watch)
    listed = await stage.witness.orders.List(common_pb2.ListRequest(min_revision=answer.revision))
    assert [item.id for item in listed.items] == [answer.item.id]
    watch.cancel()


async def test_a_batch_stays_one_batch(stage: Stage) -> None:
    watch = await after_sync(stage.witness.orders.Watch(common_pb2.WatchRequest()))
    batch = orders_pb2.SubmitBatchRequest(orders=[an_order() for _ in range(20)])
    answer = await stage.losing_the_answer(stage.cut_off.orders.SubmitBatch(batch), watch)
    assert not any(result.HasField("failure") for result in answer.results)
    newest = max(result.revision for result in answer.results)
    listed = await stage.witness.orders.List(common_pb2.ListRequest(min_revision=newest))
    assert {item.id for item in listed.items} == {result.id for result in answer.results}
    watch.cancel()


async def test_an_object_is_created_and_deleted_once(stage: Stage) -> None:
    jobs = stage.cut_off.jobs
    watch = await after_sync(stage.witness.jobs.Watch(common_pb2.WatchRequest()))
    made = await stage.losing_the_answer(jobs.Create(jobs_pb2.Job(name="j")), watch)
    seen = await stage.witness.jobs.Get(common_pb2.GetRequest(name="j", min_revision=made.revision))
    assert (seen.id, seen.revision) == (made.item.id, made.revision)
    gone = await stage.losing_the_answer(jobs.Delete(common_pb2.DeleteRequest(name="j")), watch)
    assert gone.revision > made.revision
    watch.cancel()


class Forgetful(GroupWriter):
    """A writer whose next answer gets lost after the write has happened."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.forgets = False

    async def write(self, item: Item) -> Outcome:
        outcome = await super().write(item)
        if self.forgets:
            self.forgets = False
            raise OutcomeUnknown("the answer got lost")
        return outcome


async def test_what_reads_before_it_writes_looks_again(etcd: Etcd) -> None:
    writers: list[Forgetful] = []

    def make(store: Store) -> Forgetful:
        writers.append(Forgetful(store))
        return writers[-1]

    async with an_api(etcd.endpoint, make_writer=make) as api:
        made = await api.jobs.Create(jobs_pb2.Job(name="j"))
        writers[0].forgets = True
        updated = await api.jobs.Update(jobs_pb2.Job(name="j", image="x", revision=made.revision))
        assert updated.revision == made.revision + 1
        order = (await api.orders.Submit(an_order())).item
        writers[0].forgets = True
        paused = await api.orders.Pause(orders_pb2.OrderRequest(id=order.id))
        assert (paused.item.paused, paused.revision) == (True, order.revision + 1)
        request = cluster_pb2.ApplyRequest()
        request.objects.add().job.CopyFrom(jobs_pb2.Job(name="k"))
        request.objects.add().order.CopyFrom(an_order())
        writers[0].forgets = True
        applied = await api.cluster.Apply(request)
        assert applied.revision == paused.revision + 1
        writers[0].forgets = True
        settings = await api.cluster.UpdateSettings(cluster_pb2.Settings(clean_up=60))
        assert settings.revision == applied.revision + 1
        assert not writers[0].forgets
        page = await api.orders.List(common_pb2.ListRequest(min_revision=settings.revision))
        assert len(page.items) == 2
