"""Too many orders or tasks wait for targets: no new order is taken, in every way of submitting, for a stated time."""

from __future__ import annotations

import grpc
import pytest

from controlplane.model import errors
from controlplane.model.settings import Settings
from controlplane.store import keys
from controlplane.wire.v1 import cluster_pb2, orders_pb2
from tests.component.api_stage import Api, an_order, mint, refusal


@pytest.fixture
async def api(api: Api) -> Api:
    await api.write({keys.SETTINGS: Settings(max_waiting_orders=3, max_waiting_tasks=100)})
    return api


async def test_no_order_is_taken_while_too_many_wait_and_one_is_as_soon_as_another_has_ended(api: Api) -> None:
    first = await api.orders.Submit(an_order(owner="ada"))
    await api.orders.Submit(an_order(owner="bob"))
    await api.orders.Submit(an_order(owner="cid"))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await api.orders.Submit(an_order(owner="dan"))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert ("retry-after", "5") in list(refused.value.trailing_metadata())
    assert "max_waiting_orders is 3" in str(refused.value.details())
    await api.finish(first.item.id)
    await api.orders.Submit(an_order(owner="dan"))


async def test_no_order_is_taken_while_too_many_tasks_wait(api: Api) -> None:
    await api.orders.Submit(an_order(count=99))
    await api.orders.Submit(an_order(count=50))
    error = await refusal(api.orders.Submit(an_order()))
    assert isinstance(error, errors.LimitExceeded)
    assert "max_waiting_tasks is 100" in str(error)
    assert error.retry_after_seconds == 5


async def test_a_batch_is_taken_up_to_the_limit_and_each_other_order_hears_when_to_come_again(api: Api) -> None:
    requests = [an_order(identity=mint.make()) for _ in range(50)]
    answer = await api.orders.SubmitBatch(orders_pb2.SubmitBatchRequest(orders=requests))
    refused = [result.failure for result in answer.results if result.HasField("failure")]
    assert len(refused) == 47
    assert {(failure.code, failure.retry_after_seconds) for failure in refused} == {("LimitExceeded", 5)}


async def test_an_order_that_was_taken_before_is_answered_all_the_same(api: Api) -> None:
    known = [mint.make() for _ in range(3)]
    for identity in known:
        await api.orders.Submit(an_order(identity=identity))
    assert (await api.orders.Submit(an_order(identity=known[1]))).repeated
    assert isinstance(await refusal(api.orders.Submit(an_order())), errors.LimitExceeded)


async def test_a_file_with_an_order_too_many_is_refused_whole(api: Api) -> None:
    objects = [cluster_pb2.Object(order=an_order(identity=mint.make())) for _ in range(4)]
    error = await refusal(api.cluster.Apply(cluster_pb2.ApplyRequest(objects=objects)))
    assert isinstance(error, errors.LimitExceeded)
    assert error.retry_after_seconds == 5
    answer = await api.cluster.Apply(cluster_pb2.ApplyRequest(objects=objects[:3]))
    assert [item.result for item in answer.items] == ["created"] * 3
