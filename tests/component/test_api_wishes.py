"""Wishes about tasks and updates of orders through the API: said once, checked, bounded, refused by field."""

from __future__ import annotations

from typing import Any

import msgspec

from controlplane.apiserver.commands import order_wishes
from controlplane.model import errors
from controlplane.model.order import Counts, Order, OrderStatus, TaskSelection
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, delete, put
from controlplane.wire.v1 import orders_pb2, resources_pb2, targets_pb2
from tests.builders import FulfilmentBuilder, a_fulfilment, a_session
from tests.component.api_stage import Api, an_order, refusal

JOB = "job-1"


async def submitted(api: Api, count: int = 3, **said: Any) -> str:
    answer = await api.orders.Submit(an_order(count=count, **said))
    return str(answer.item.id)


async def write(api: Api, contents: dict[str, msgspec.Struct | None]) -> None:
    """As a leader and joblets would."""
    operations = [put(key, codec.encode(item)) if item is not None else delete(key) for key, item in contents.items()]
    await api.store.commit(Item(then=tuple(operations)))


async def place(api: Api, order: str, index: int, attempt: int = 1) -> FulfilmentBuilder:
    one = a_fulfilment(order).task(index, job=JOB, attempt=attempt)
    await write(api, {keys.desired("t1", one.identity): one.build()})
    return one


async def end(api: Api, one: FulfilmentBuilder, decision: str) -> None:
    await write(api, {keys.ended(one.order, one.identity): one.ended(decision), keys.desired("t1", one.identity): None})


async def stored(api: Api, order: str) -> Order:
    value = await api.store.get(keys.order(order))
    assert value is not None
    return codec.decode(value.value, Order)


def tasks(order: str, index: int | None = None, job: str = JOB) -> orders_pb2.TasksRequest:
    return orders_pb2.TasksRequest(id=order, job=job, index=index)


def move(order: str, index: int, **said: Any) -> orders_pb2.MoveTaskRequest:
    return orders_pb2.MoveTaskRequest(id=order, job=JOB, index=index, **said)


async def test_a_cancelled_task_is_written_once_and_a_cancelled_job_stands_for_its_tasks(api: Api) -> None:
    order = await submitted(api)
    first = await api.orders.CancelTasks(tasks(order, 1))
    assert (await api.orders.CancelTasks(tasks(order, 1))).revision == first.revision
    assert [(one.job, one.index) for one in (await stored(api, order)).cancel_tasks] == [(JOB, 1)]
    whole = await api.orders.CancelTasks(tasks(order))
    assert [(one.job, one.index) for one in (await stored(api, order)).cancel_tasks] == [(JOB, None)]
    assert (await api.orders.CancelTasks(tasks(order, 2))).revision == whole.revision
    assert not whole.item.cancel_tasks[0].HasField("index")


async def test_without_a_job_the_whole_order_is_cancelled(api: Api) -> None:
    order = await submitted(api)
    assert (await api.orders.CancelTasks(orders_pb2.TasksRequest(id=order))).item.cancel


async def test_a_move_names_the_attempt_that_is_to_leave_and_makes_room_for_the_next(api: Api) -> None:
    order = await submitted(api)
    assert not (await api.orders.MoveTask(move(order, 0))).item.moves, "it is on no target yet"
    one = await place(api, order, 0)
    first = await api.orders.MoveTask(move(order, 0))
    assert (await api.orders.MoveTask(move(order, 0, attempt=1))).revision == first.revision
    assert [(one.index, one.attempt, one.to) for one in first.item.moves] == [(0, 1, "")]
    await end(api, one, "move")
    await place(api, order, 0, 2)
    assert (await api.orders.MoveTask(move(order, 0, attempt=1))).revision == first.revision
    await place(api, order, 1)
    other = await api.orders.MoveTask(move(order, 1))
    assert [(one.index, one.attempt) for one in other.item.moves] == [(1, 1)]


async def test_a_waiting_task_may_be_sent_to_a_target_that_exists(api: Api) -> None:
    order = await submitted(api)
    error = await refusal(api.orders.MoveTask(move(order, 0, to="t1")))
    assert isinstance(error, errors.NotFound)
    await api.targets.Create(targets_pb2.Target(name="t1"))
    moved = await api.orders.MoveTask(move(order, 0, to="t1"))
    assert [(one.index, one.attempt, one.to) for one in moved.item.moves] == [(0, 0, "t1")]


async def test_a_task_is_not_sent_to_a_target_that_could_never_hold_it(api: Api) -> None:
    order = await submitted(api)
    for name, cpu in (("small", 0.5), ("large", 2)):
        target = targets_pb2.Target(name=name)
        target.capacity.of["cpu"] = cpu
        made = await api.targets.Create(target)
        await api.cache.reached(made.revision, 10)
    error = await refusal(api.orders.MoveTask(move(order, 0, to="small")))
    assert (type(error), getattr(error, "field", "")) == (errors.Invalid, "to")
    assert "0.5 cpu" in str(error)
    await api.orders.MoveTask(move(order, 0, to="large"))


async def test_a_release_is_for_what_is_held_now(api: Api) -> None:
    order = await submitted(api)
    none = await api.orders.ReleaseTasks(tasks(order))
    assert not none.item.releases
    one = await place(api, order, 0)
    await end(api, one, "hold")
    first = await api.orders.ReleaseTasks(tasks(order, 0))
    assert (await api.orders.ReleaseTasks(tasks(order, 0))).revision == first.revision
    await end(api, await place(api, order, 0, 2), "hold")
    await end(api, await place(api, order, 1), "hold")
    all_of_it = await api.orders.ReleaseTasks(orders_pb2.TasksRequest(id=order))
    (release,) = all_of_it.item.releases
    assert (release.job, release.HasField("index")) == ("", False)
    assert release.until > first.item.releases[0].until
    shown = await api.orders.ListTasks(orders_pb2.ListTasksRequest(id=order, min_revision=all_of_it.revision))
    assert [task.phase for task in shown.items] == ["Pending"] * 3


async def test_a_persons_word_names_the_attempt_and_only_counts_where_nobody_else_can_say(api: Api) -> None:
    order = await submitted(api)
    said = orders_pb2.TasksRequest(id=order, job=JOB, index=0, stopped=True)
    error = await refusal(api.orders.ReleaseTasks(said))
    assert (type(error), getattr(error, "field", "")) == (errors.IllegalTransition, "index")
    one = await place(api, order, 0)
    await write(api, {keys.live("t1"): a_session("t1")})
    error = await refusal(api.orders.ReleaseTasks(said))
    assert (type(error), getattr(error, "field", "")) == (errors.IllegalTransition, "stopped")
    error = await refusal(api.orders.ReleaseTasks(orders_pb2.TasksRequest(id=order, job=JOB, stopped=True)))
    assert (type(error), getattr(error, "field", "")) == (errors.Invalid, "index")
    assert (await stored(api, order)).stopped == ()
    await write(api, {keys.live("t1"): None})
    first = await api.orders.ReleaseTasks(said)
    assert (await api.orders.ReleaseTasks(said)).revision == first.revision
    assert [(word.job, word.index, word.attempt) for word in first.item.stopped] == [(JOB, 0, 1)]
    assert not first.item.releases
    await end(api, one, "retry")
    await place(api, order, 0, 2)
    again = await api.orders.ReleaseTasks(said)
    assert [(word.index, word.attempt) for word in again.item.stopped] == [(0, 2)]


async def test_wishes_that_make_no_sense_are_refused_with_the_field(api: Api) -> None:
    order = await submitted(api)
    await end(api, await place(api, order, 0), "done")
    await end(api, await place(api, order, 1), "hold")
    before = await stored(api, order)
    for call, kind, field in (
        (api.orders.CancelTasks(tasks(order, job="no")), errors.NotFound, "job"),
        (api.orders.CancelTasks(tasks(order, 3)), errors.Invalid, "index"),
        (api.orders.CancelTasks(tasks(order, -1)), errors.Invalid, "index"),
        (api.orders.CancelTasks(tasks(order, 0)), errors.IllegalTransition, "index"),
        (api.orders.CancelTasks(orders_pb2.TasksRequest(id=order, index=1)), errors.Invalid, "job"),
        (api.orders.CancelTasks(tasks("x")), errors.Invalid, "id"),
        (api.orders.MoveTask(move(order, 0)), errors.IllegalTransition, "index"),
        (api.orders.MoveTask(move(order, 1)), errors.IllegalTransition, "index"),
        (api.orders.MoveTask(move(order, 2, attempt=7)), errors.NotFound, "attempt"),
        (api.orders.MoveTask(move(order, 2, to="A B")), errors.Invalid, "to"),
        (api.orders.ReleaseTasks(tasks(order, 9)), errors.Invalid, "index"),
        (api.orders.ReleaseTasks(orders_pb2.TasksRequest(id=order, index=1)), errors.Invalid, "job"),
    ):
        error = await refusal(call)
        assert (type(error), getattr(error, "field", "")) == (kind, field), error
    assert await stored(api, order) == before


async def test_an_order_holds_so_many_wishes_about_single_tasks_and_no_more(api: Api) -> None:
    order = await submitted(api, order_wishes.MAX_WISHES + 1)
    full = await stored(api, order)
    selection = tuple(TaskSelection(job=JOB, index=index) for index in range(order_wishes.MAX_WISHES))
    full = msgspec.structs.replace(full, cancel_tasks=selection)
    await write(api, {keys.order(order): full})
    error = await refusal(api.orders.CancelTasks(tasks(order, order_wishes.MAX_WISHES)))
    assert (type(error), getattr(error, "field", "")) == (errors.LimitExceeded, "index")
    assert len((await api.orders.CancelTasks(tasks(order))).item.cancel_tasks) == 1


def update(order: str, **said: Any) -> orders_pb2.UpdateOrderRequest:
    return orders_pb2.UpdateOrderRequest(id=order, **said)


async def test_an_update_sets_what_it_says_and_leaves_the_rest(api: Api) -> None:
    await api.targets.Create(targets_pb2.Target(name="t1"))
    await api.resources.Create(resources_pb2.Resource(name="r", key="R", value="1"))
    order = await submitted(api, deadline=60)
    names = orders_pb2.ResourceNames(names=["r"])
    said = update(order, target_policy="strict:t1", not_before="2030-01-01T01:00:00+01:00", resources=names)
    done = await api.orders.Update(said)
    assert (await api.orders.Update(said)).revision == done.revision
    item = done.item
    assert (item.target_policy, item.not_before, item.deadline) == ("strict:t1", "2030-01-01T00:00:00.000Z", 60)
    assert [(resource.name, resource.value) for resource in item.resources] == [("r", "1")]
    none = update(order, target_policy="", not_before="", deadline=0, resources=orders_pb2.ResourceNames(), priority=7)
    item = (await api.orders.Update(none)).item
    assert (item.HasField("target_policy"), item.HasField("not_before"), item.HasField("deadline")) == (False,) * 3
    assert (list(item.resources), item.priority) == ([], 7)


async def test_an_update_is_checked_like_a_new_order(api: Api) -> None:
    await api.targets.Create(targets_pb2.Target(name="t1"))
    await api.resources.Create(resources_pb2.Resource(name="u", key="U", value="1", unique=True))
    spread = an_order(count=2)
    spread.packet.object.jobs[0].job.object.spread = "order"
    gang = an_order(count=2)
    gang.packet.object.gang = True
    apart, together = [(await api.orders.Submit(made)).item.id for made in (spread, gang)]
    for request, kind, field in (
        (update(apart, priority=0), errors.Invalid, "priority"),
        (update(apart, target_policy="t1"), errors.Invalid, "target_policy"),
        (update(apart, target_policy="strict:t2"), errors.NotFound, "target_policy"),
        (update(apart, target_policy="strict:t1"), errors.Invalid, "target_policy"),
        (update(apart, deadline=-1), errors.Invalid, "deadline"),
        (update(apart, not_before="tomorrow"), errors.Invalid, "not_before"),
        (update(apart, resources=orders_pb2.ResourceNames(names=["x"])), errors.NotFound, "resources[0]"),
        (update(apart, resources=orders_pb2.ResourceNames(names=["u", "u"])), errors.Invalid, "resources[1]"),
        (update(together, resources=orders_pb2.ResourceNames(names=["u"])), errors.Invalid, "resources"),
    ):
        error = await refusal(api.orders.Update(request))
        assert (type(error), getattr(error, "field", "")) == (kind, field), error


async def test_a_deadline_by_which_tasks_failed_stays(api: Api) -> None:
    order = await submitted(api, deadline=60)
    status = OrderStatus(order=order, epoch=1, phase="Running", counts=Counts(failed=3), expired=(JOB,))
    await write(api, {keys.order_status(order): status})
    error = await refusal(api.orders.Update(update(order, deadline=600)))
    assert (type(error), getattr(error, "field", "")) == (errors.IllegalTransition, "deadline")
    shown = await api.orders.ListTasks(orders_pb2.ListTasksRequest(id=order))
    assert {(task.phase, task.reason) for task in shown.items} == {("Failed", "DeadlineExceeded")}


async def test_wishes_are_taken_though_others_write_their_own_keys_into_the_same_etcd(api: Api) -> None:
    order = await submitted(api)
    for priority in (1, 2, 3):
        await api.store.commit(Item(then=(put("/registry/somebody/else", b"%d" % priority),)))
        answer = await api.orders.Update(orders_pb2.UpdateOrderRequest(id=order, priority=priority), timeout=4)
        assert answer.item.priority == priority
