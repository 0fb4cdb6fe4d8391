"""How many orders an owner may have under way: refused at the limit, in every way of submitting."""

from __future__ import annotations

import pytest

from controlplane.model import errors
from controlplane.model.settings import Quota, Settings
from controlplane.store import keys
from controlplane.wire.v1 import cluster_pb2, common_pb2, orders_pb2
from tests.component.api_stage import Api, an_order, mint, refusal

LIMITS = Settings(
    quotas={"ada": Quota(orders=3), "eve": Quota(live_tasks=1), "*": Quota(orders=1), "fay": Quota(waiting_tasks=5)}
)


@pytest.fixture
async def api(api: Api) -> Api:
    await api.write({keys.SETTINGS: LIMITS})
    return api


async def stored(api: Api) -> int:
    answer = await api.orders.List(common_pb2.ListRequest(min_revision=api.cache.revision))
    return len(answer.items)


async def test_an_owner_gets_as_many_orders_as_its_quota_says_and_more_once_one_is_final(api: Api) -> None:
    first = await api.orders.Submit(an_order(owner="ada"))
    for _ in range(2):
        await api.orders.Submit(an_order(owner="ada"))
    error = await refusal(api.orders.Submit(an_order(owner="ada")))
    assert isinstance(error, errors.LimitExceeded)
    assert error.field == "owner"
    await api.finish(first.item.id)
    await api.orders.Submit(an_order(owner="ada"))
    assert isinstance(await refusal(api.orders.Submit(an_order(owner="ada"))), errors.LimitExceeded)


async def test_owners_without_a_quota_of_their_own_share_the_rule_and_not_the_room(api: Api) -> None:
    for owner in ("bob", "cid", ""):
        await api.orders.Submit(an_order(owner=owner))
        assert isinstance(await refusal(api.orders.Submit(an_order(owner=owner))), errors.LimitExceeded)
    for _ in range(5):
        await api.orders.Submit(an_order(owner="eve"))


async def test_an_owner_has_as_many_waiting_tasks_as_its_quota_says(api: Api) -> None:
    first = await api.orders.Submit(an_order(owner="fay", count=3))
    error = await refusal(api.orders.Submit(an_order(owner="fay", count=3)))
    assert isinstance(error, errors.LimitExceeded)
    assert error.field == "owner"
    assert "3 tasks waiting and may have 5, so not 3 more" in str(error)
    await api.orders.Submit(an_order(owner="fay", count=2))
    assert isinstance(await refusal(api.orders.Submit(an_order(owner="fay", count=1))), errors.LimitExceeded)
    await api.finish(first.item.id)
    await api.orders.Submit(an_order(owner="fay", count=3))
    for _ in range(5):
        await api.orders.Submit(an_order(owner="eve", count=100))


async def test_a_repeated_submit_is_answered_whatever_the_quota_says(api: Api) -> None:
    identity = mint.make()
    await api.orders.Submit(an_order(identity=identity, owner="bob"))
    again = await api.orders.Submit(an_order(identity=identity, owner="bob"))
    assert again.repeated
    await api.finish(identity)
    await api.orders.Submit(an_order(owner="bob"))
    again = await api.orders.Submit(an_order(identity=identity, owner="bob"))
    assert again.repeated
    batch = await api.orders.SubmitBatch(
        orders_pb2.SubmitBatchRequest(orders=[an_order(identity=identity, owner="bob"), an_order(owner="bob")])
    )
    assert batch.results[0].repeated
    assert batch.results[1].failure.code == "LimitExceeded"


async def test_repeats_take_no_places(api: Api) -> None:
    identity = mint.make()
    for _ in range(5):
        await api.orders.Submit(an_order(identity=identity, owner="ada"))
    await api.finish(identity)
    for _ in range(5):
        await api.orders.Submit(an_order(identity=identity, owner="ada"))
    for _ in range(3):
        await api.orders.Submit(an_order(owner="ada"))
    assert isinstance(await refusal(api.orders.Submit(an_order(owner="ada"))), errors.LimitExceeded)


async def test_a_batch_is_let_in_up_to_the_limit(api: Api) -> None:
    requests = [an_order(identity=mint.make(), owner="ada") for _ in range(200)]
    batch = await api.orders.SubmitBatch(orders_pb2.SubmitBatchRequest(orders=requests))
    refused = [result for result in batch.results if result.HasField("failure")]
    assert len(refused) == 197
    assert {(result.failure.code, result.failure.field) for result in refused} == {("LimitExceeded", "owner")}
    assert await stored(api) == 3


async def test_a_file_that_goes_over_the_limit_is_refused_whole(api: Api) -> None:
    orders = [cluster_pb2.Object(order=an_order(identity=mint.make(), owner="ada")) for _ in range(4)]
    error = await refusal(api.cluster.Apply(cluster_pb2.ApplyRequest(objects=orders)))
    assert isinstance(error, errors.LimitExceeded)
    assert error.field == "objects[3].owner"
    assert await stored(api) == 0
    answer = await api.cluster.Apply(cluster_pb2.ApplyRequest(objects=orders[:3]))
    assert [item.result for item in answer.items] == ["created"] * 3
    again = await api.cluster.Apply(cluster_pb2.ApplyRequest(objects=orders[:3]))
    assert [item.result for item in again.items] == ["unchanged"] * 3


async def test_a_refused_write_gives_its_place_back(api: Api) -> None:
    taken = mint.make()
    await api.orders.Submit(an_order(identity=taken, owner="eve"))
    for _ in range(5):
        error = await refusal(api.orders.Submit(an_order(identity=taken, owner="bob")))
        assert isinstance(error, errors.AlreadyExists)
    await api.orders.Submit(an_order(owner="bob"))


async def test_recurring_orders_are_counted_by_themselves_until_they_are_over(api: Api) -> None:
    def recurring() -> orders_pb2.Order:
        order = an_order(owner="bob")
        order.schedule.cron = "0 3 * * *"
        return order

    first = await api.orders.Submit(recurring())
    await api.cache.reached(first.revision, 10)
    error = await refusal(api.orders.Submit(recurring()))
    assert isinstance(error, errors.LimitExceeded)
    assert (error.field, "recurring" in str(error)) == ("owner", True)
    await api.orders.Submit(an_order(owner="bob"))
    await api.finish(first.item.id)
    await api.orders.Submit(recurring())
