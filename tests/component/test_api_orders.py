"""Orders through the API: submitted once however often, changed on purpose, looked at page by page."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controlplane.model import errors
from controlplane.store import keys, transaction
from controlplane.store.transaction import Item
from controlplane.wire.v1 import cluster_pb2, common_pb2, orders_pb2, packets_pb2, targets_pb2
from tests.component.api_stage import Api, an_api, an_order, mint, refusal
from tests.etcd import Etcd


def a_gang(order: orders_pb2.Order, *arguments: str) -> orders_pb2.Order:
    order.packet.object.gang = True
    order.packet.object.jobs[0].job.object.command.extend(arguments)
    return order


async def test_a_submitted_order_is_stored_with_its_defaults_and_shown_as_pending(api: Api) -> None:
    answer = await api.orders.Submit(an_order(count=3, owner="ada"))
    order = await api.orders.Get(common_pb2.GetRequest(name=answer.item.id, min_revision=answer.revision))
    assert (order.priority, order.orchestration, order.owner, order.creator) == (50, "push", "ada", "ada")
    assert order.tasks_total == 3
    assert order.resolved.jobs[0].job.name == "job-1"
    assert dict(order.resolved.jobs[0].job.requests.of) == {"cpu": 1.0}
    assert (order.status.phase, order.status.counts.pending) == ("Pending", 3)
    assert [(reason.reason, reason.count) for reason in order.status.reasons] == [("NoTargets", 3)]
    assert [(task.phase, task.reason) for task in order.tasks] == [("Pending", "NoTargets")] * 3
    assert [(task.index, task.phase, task.attempt) for task in order.tasks] == [
        (0, "Pending", 0),
        (1, "Pending", 0),
        (2, "Pending", 0),
    ]


async def test_the_same_identity_with_the_same_content_is_one_order(api: Api) -> None:
    identity = mint.make()
    first = await api.orders.Submit(an_order(identity=identity))
    again = await api.orders.Submit(an_order(identity=identity))
    assert (first.repeated, again.repeated) == (False, True)
    assert again.revision == first.revision
    assert again.item.created == first.item.created


async def test_the_same_identity_with_other_content_is_refused(api: Api) -> None:
    identity = mint.make()
    await api.orders.Submit(an_order(identity=identity))
    error = await refusal(api.orders.Submit(an_order(identity=identity, priority=60)))
    assert isinstance(error, errors.AlreadyExists)
    assert error.field == "id"


async def test_a_repeat_through_another_replica_at_the_same_moment_is_one_order(api: Api, shared: Etcd) -> None:
    async with an_api(shared.endpoint, "replica-2") as other:
        for _ in range(20):
            order = an_order(identity=mint.make())
            answers = await asyncio.gather(api.orders.Submit(order), other.orders.Submit(order))
            assert sorted(answer.repeated for answer in answers) == [False, True]


async def test_a_repeat_is_the_same_order_also_after_its_packet_is_gone(api: Api) -> None:
    packet = packets_pb2.Packet(name="once")
    packet.jobs.add().job.object.command.append("true")
    await api.packets.Create(packet)
    identity = mint.make()
    await api.orders.Submit(an_order(packet="once", identity=identity))
    gone = await api.packets.Delete(common_pb2.DeleteRequest(name="once"))
    await api.cache.reached(gone.revision, 10)
    assert (await api.orders.Submit(an_order(packet="once", identity=identity))).repeated
    error = await refusal(api.orders.Submit(an_order(packet="once", identity=mint.make())))
    assert isinstance(error, errors.NotFound)
    assert error.field == "packet"


async def test_an_unknown_identity_older_than_the_clean_up_time_is_refused(api: Api) -> None:
    error = await refusal(api.orders.Submit(an_order(identity="01ARZ3NDEKTSV4RRFFQ69G5FAV")))
    assert isinstance(error, errors.Invalid)
    assert error.field == "id"


@pytest.mark.parametrize(
    ("order", "kind", "field"),
    [
        (an_order(priority=0), errors.Invalid, "priority"),
        (an_order(priority=101), errors.Invalid, "priority"),
        (an_order(packet="missing"), errors.NotFound, "packet"),
        (an_order(target_policy="strict:nowhere"), errors.NotFound, "target_policy"),
        (an_order(count=0), errors.Invalid, "packet.jobs[0].count"),
        (an_order(count=1_000_000), errors.LimitExceeded, "packet"),
        (an_order(identity="short"), errors.Invalid, "id"),
        (an_order(cancel=True), errors.Invalid, "cancel"),
        (orders_pb2.Order(), errors.Invalid, "packet"),
        (a_gang(an_order(count=2001)), errors.LimitExceeded, "packet.gang"),
        (a_gang(an_order(count=400), "x" * 3000), errors.LimitExceeded, "packet.gang"),
    ],
)
async def test_a_bad_order_is_refused_by_its_field_and_changes_nothing(
    api: Api, order: orders_pb2.Order, kind: type[errors.Refused], field: str
) -> None:
    before = await api.store.revision()
    error = await refusal(api.orders.Submit(order))
    assert type(error) is kind
    assert error.field == field
    assert await api.store.revision() == before


async def test_a_region_that_the_only_target_allowed_is_not_in_is_accepted_with_a_warning(api: Api) -> None:
    await api.targets.Create(targets_pb2.Target(name="us-1", region="us"))
    order = an_order(target_policy="strict:us-1")
    order.packet.object.jobs[0].job.object.region = "eu"
    answer = await api.orders.Submit(order)
    assert [warning.field for warning in answer.warnings] == ["packet.jobs[0].job.region"]
    applied = await api.cluster.Apply(cluster_pb2.ApplyRequest(objects=[cluster_pb2.Object(order=order)]))
    assert [warning.field for warning in applied.warnings] == ["objects[0].packet.jobs[0].job.region"]


async def test_a_batch_gives_each_order_its_own_result(api: Api) -> None:
    twice = an_order(identity=mint.make())
    batch = [an_order(), an_order(priority=500), twice, an_order(packet="missing"), twice, an_order(cancel=True)]
    answer = await api.orders.SubmitBatch(orders_pb2.SubmitBatchRequest(orders=batch))
    failures = {at: (result.failure.code, result.failure.field) for at, result in enumerate(answer.results)}
    assert {at: failure for at, failure in failures.items() if failure[0]} == {
        1: ("Invalid", "priority"),
        3: ("NotFound", "packet"),
        5: ("Invalid", "cancel"),
    }
    # Two groups may be under way at a time, so either of the two may have come first.
    assert sorted(result.repeated for result in (answer.results[2], answer.results[4])) == [False, True]
    assert not any(answer.results[at].repeated for at in (0, 1, 3, 5))
    assert answer.results[2].id == answer.results[4].id == twice.id


async def test_a_batch_of_a_thousand_is_stored_whole_and_one_more_is_refused(api: Api) -> None:
    batch = orders_pb2.SubmitBatchRequest(orders=[an_order(identity=mint.make()) for _ in range(1000)])
    answer = await api.orders.SubmitBatch(batch)
    assert not any(result.HasField("failure") for result in answer.results)
    await api.cache.reached(max(result.revision for result in answer.results), 10)
    assert api.cache.snapshot.count(keys.ORDERS) == 1000
    batch.orders.add()
    error = await refusal(api.orders.SubmitBatch(batch))
    assert isinstance(error, errors.LimitExceeded)


async def test_orders_are_listed_by_identity_page_by_page(api: Api) -> None:
    batch = orders_pb2.SubmitBatchRequest(orders=[an_order(identity=mint.make()) for _ in range(25)])
    answer = await api.orders.SubmitBatch(batch)
    revision = max(result.revision for result in answer.results)
    seen: list[str] = []
    token = ""
    for expected in (10, 10, 5):
        page = await api.orders.List(common_pb2.ListRequest(min_revision=revision, limit=10, page_token=token))
        assert len(page.items) == expected
        seen += [item.id for item in page.items]
        token = page.next_page_token
    assert token == ""
    assert seen == [order.id for order in batch.orders]


async def test_a_list_can_ask_for_one_phase(api: Api) -> None:
    one, two = [(await api.orders.Submit(an_order())).item.id for _ in range(2)]
    await api.finish(one)
    page = await api.orders.List(common_pb2.ListRequest(phase="Succeeded"))
    assert [item.id for item in page.items] == [one]
    page = await api.orders.List(common_pb2.ListRequest(phase="Pending"))
    assert [item.id for item in page.items] == [two]
    error = await refusal(api.orders.List(common_pb2.ListRequest(phase="Gone")))
    assert isinstance(error, errors.Invalid)


async def test_tasks_come_in_pages_through_all_jobs(api: Api) -> None:
    order = an_order(count=1500)
    order.packet.object.jobs.add(count=700).job.object.name = "second"
    answer = await api.orders.Submit(order)
    shown = await api.orders.Get(common_pb2.GetRequest(name=answer.item.id, min_revision=answer.revision))
    assert len(shown.tasks) == 1000
    seen = [(task.job, task.index) for task in shown.tasks]
    token = shown.next_task_token
    while token:
        page = await api.orders.ListTasks(orders_pb2.ListTasksRequest(id=answer.item.id, page_token=token))
        seen += [(task.job, task.index) for task in page.items]
        token = page.next_page_token
    assert seen == [("job-1", index) for index in range(1500)] + [("second", index) for index in range(700)]


async def test_wishes_are_written_once_and_may_be_repeated(api: Api) -> None:
    identity = (await api.orders.Submit(an_order())).item.id
    paused = await api.orders.Pause(orders_pb2.OrderRequest(id=identity))
    again = await api.orders.Pause(orders_pb2.OrderRequest(id=identity))
    assert paused.item.paused
    assert again.revision == paused.revision
    resumed = await api.orders.Resume(orders_pb2.OrderRequest(id=identity))
    assert not resumed.item.paused
    updated = await api.orders.Update(orders_pb2.UpdateOrderRequest(id=identity, priority=90))
    assert updated.item.priority == 90
    cancelled = await api.orders.Cancel(orders_pb2.OrderRequest(id=identity))
    assert cancelled.item.cancel
    assert (await api.orders.Cancel(orders_pb2.OrderRequest(id=identity))).revision == cancelled.revision
    error = await refusal(api.orders.Pause(orders_pb2.OrderRequest(id=identity)))
    assert isinstance(error, errors.IllegalTransition)
    error = await refusal(api.orders.Update(orders_pb2.UpdateOrderRequest(id=identity, priority=0)))
    assert (type(error), error.field) == (errors.Invalid, "priority")  # type: ignore[attr-defined]


async def test_a_wish_on_an_old_revision_is_a_conflict(api: Api) -> None:
    first = await api.orders.Submit(an_order())
    await api.orders.Update(orders_pb2.UpdateOrderRequest(id=first.item.id, priority=90))
    error = await refusal(api.orders.Pause(orders_pb2.OrderRequest(id=first.item.id, revision=first.revision)))
    assert isinstance(error, errors.Conflict)


async def test_wishes_from_many_at_once_all_hold(api: Api) -> None:
    identity = (await api.orders.Submit(an_order())).item.id
    await asyncio.gather(
        api.orders.Pause(orders_pb2.OrderRequest(id=identity)),
        api.orders.Update(orders_pb2.UpdateOrderRequest(id=identity, priority=7)),
        api.orders.Cancel(orders_pb2.OrderRequest(id=identity)),
        return_exceptions=True,
    )
    done = await api.orders.Update(orders_pb2.UpdateOrderRequest(id=identity))
    assert (done.item.cancel, done.item.priority) == (True, 7)


async def test_a_final_order_takes_no_wish_and_may_be_deleted(api: Api) -> None:
    identity = (await api.orders.Submit(an_order())).item.id
    error = await refusal(api.orders.Delete(common_pb2.DeleteRequest(name=identity)))
    assert isinstance(error, errors.IllegalTransition)
    await api.finish(identity)
    for wish in (api.orders.Cancel, api.orders.Pause, api.orders.Resume):
        assert isinstance(await refusal(wish(orders_pb2.OrderRequest(id=identity))), errors.IllegalTransition)
    gone = await api.orders.Delete(common_pb2.DeleteRequest(name=identity))
    error = await refusal(api.orders.Get(common_pb2.GetRequest(name=identity, min_revision=gone.revision)))
    assert isinstance(error, errors.NotFound)


async def test_cancelling_a_cancelled_order_changes_nothing(api: Api) -> None:
    answer = await api.orders.Submit(an_order())
    await api.finish(answer.item.id, "Cancelled")
    assert (await api.orders.Cancel(orders_pb2.OrderRequest(id=answer.item.id))).revision == answer.revision


async def test_fields_of_a_newer_version_survive_a_wish(api: Api) -> None:
    identity = (await api.orders.Submit(an_order())).item.id
    stored = await api.store.get(keys.order(identity))
    assert stored is not None
    newer = stored.value[:-1] + b',"mood":"good"}'
    await api.store.commit(Item((), (transaction.put(stored.key, newer),)))
    await api.orders.Pause(orders_pb2.OrderRequest(id=identity))
    after = await api.store.get(keys.order(identity))
    assert after is not None
    assert b'"mood":"good"' in after.value
    assert b'"paused":true' in after.value


async def test_a_watch_shows_what_is_there_then_changes_of_order_and_status(api: Api) -> None:
    first = (await api.orders.Submit(an_order())).item.id
    call = api.orders.Watch(common_pb2.WatchRequest(min_revision=api.cache.revision))
    event = await call.read()
    assert (event.type, event.object.id) == ("put", first)
    assert (await call.read()).type == "sync"
    await api.finish(first)
    event = await call.read()
    assert (event.type, event.object.status.phase) == ("put", "Succeeded")
    await api.orders.Delete(common_pb2.DeleteRequest(name=first))
    event = await call.read()
    assert (event.type, event.object.id) == ("delete", first)
    call.cancel()


async def test_what_was_admitted_once_is_judged_again_when_what_it_names_has_changed(api: Api) -> None:
    await api.targets.Create(targets_pb2.Target(name="edge-1"))
    strict: dict[str, Any] = {"target_policy": "strict:edge-1", "owner": "ada"}
    first, second = [await api.orders.Submit(an_order(**strict)) for _ in range(2)]
    assert first.item.id != second.item.id
    gone = await api.targets.Delete(common_pb2.DeleteRequest(name="edge-1"))
    await api.cache.reached(gone.revision, 10)
    error = await refusal(api.orders.Submit(an_order(**strict)))
    assert isinstance(error, errors.NotFound)
    assert error.field == "target_policy"
    batch = await api.orders.SubmitBatch(orders_pb2.SubmitBatchRequest(orders=[an_order(**strict), an_order()]))
    assert [result.failure.code for result in batch.results] == ["NotFound", ""]
