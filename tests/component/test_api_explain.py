"""Explain and plan through the API: what waits says why, now and then; a plan changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.model import errors
from controlplane.model.leadership import Cycle
from controlplane.model.order import Counts, OrderStatus
from controlplane.model.quantity import Number
from controlplane.model.settings import Quota, Settings
from controlplane.model.target import TargetStatus
from controlplane.store import keys
from controlplane.wire.v1 import orders_pb2, targets_pb2
from tests.builders import NOW, a_fulfilment, a_session, a_target
from tests.component.api_stage import Api, an_order, mint, refusal


async def join(api: Api, name: str, *, cpu: Number) -> int:
    """A target that is ready."""
    return await api.write(
        {
            keys.config("targets", name): a_target(name, cpu=cpu),
            keys.live(name): a_session(name, cpu=cpu),
            keys.target_status(name): TargetStatus(target=name, epoch=1, phase="Ready"),
        },
    )


def asking_for(cpu: float, *, count: int = 1, **fields: Any) -> orders_pb2.Order:
    order = an_order(count=count, **fields)
    order.packet.object.jobs[0].job.object.requests.of["cpu"] = cpu
    return order


async def submit(api: Api, order: orders_pb2.Order) -> str:
    answer = await api.orders.Submit(order)
    await api.cache.reached(answer.revision, 10)
    return str(answer.item.id)


async def explain(api: Api, identity: str, cycle: int = 0) -> Any:
    return await api.orders.Explain(orders_pb2.ExplainRequest(id=identity, cycle=cycle))


def a_cycle(n: int, revision: int, *, epoch: int = 1) -> Cycle:
    return Cycle(
        epoch=epoch, n=n, revision=revision, now=NOW, seed=0, settings_digest="", engine="e", considered=0, placed=0,
        seconds=0.0, hash="h",
    )  # fmt: skip


async def test_every_target_says_what_it_lacks_and_who_holds_it(api: Api) -> None:
    await join(api, "eu", cpu=4)
    await join(api, "us", cpu=1)
    holder = await submit(api, asking_for(3))
    placed = a_fulfilment(holder).on("eu").task(0, job="job-1").requesting(cpu=3).build()
    await api.write({keys.desired("eu", placed.id): placed})
    waits = await submit(api, asking_for(2, count=3))
    found = await explain(api, waits)
    assert (found.order, found.HasField("cycle"), found.revision) == (waits, False, api.cache.revision)
    assert found.conclusion.startswith("3 tasks wait")
    [group] = found.groups
    assert (group.job, group.count, group.reason) == ("job-1", 3, "InsufficientCapacity")
    eu, us = group.targets
    assert (eu.target, eu.fits, eu.filter, eu.waiting_helps) == ("eu", False, "InsufficientCapacity", True)
    assert (dict(eu.need), dict(eu.have), dict(eu.missing)) == ({"cpu": 2}, {"cpu": 1}, {"cpu": 1})
    assert list(eu.held_by) == [holder]
    assert (us.target, us.fits, us.waiting_helps) == ("us", False, False)


async def test_who_is_served_before_is_named(api: Api) -> None:
    await join(api, "eu", cpu=1)
    first = await submit(api, asking_for(1, count=2, priority=90))
    found = await explain(api, await submit(api, asking_for(1, priority=10)))
    assert [(ahead.order, ahead.priority, ahead.tasks) for ahead in found.ahead] == [(first, 90, 2)]


async def test_a_past_cycle_is_explained_as_it_was_after_the_world_changed(api: Api) -> None:
    await join(api, "eu", cpu=1)
    waits = await submit(api, asking_for(2))
    then = api.cache.revision
    before = await explain(api, waits)
    await api.write({keys.cycle(1, 7): a_cycle(7, then)})
    await join(api, "eu", cpu=8)
    await join(api, "us", cpu=8)
    now = await explain(api, waits)
    assert [verdict.fits for verdict in now.groups[0].targets] == [True, True]
    past = await explain(api, waits, cycle=7)
    assert (past.cycle, past.revision) == (7, then)
    assert past.groups == before.groups
    assert [(verdict.target, verdict.filter) for verdict in past.groups[0].targets] == [("eu", "InsufficientCapacity")]


async def test_a_past_cycle_is_explained_for_an_order_that_is_gone_since(api: Api) -> None:
    waits = await submit(api, asking_for(2))
    await api.write({keys.cycle(1, 7): a_cycle(7, api.cache.revision)})
    await api.write({keys.order(waits): None})
    assert (await explain(api, waits, cycle=7)).groups[0].reason == "NoTargets"
    error = await refusal(explain(api, waits))
    assert isinstance(error, errors.NotFound)
    assert error.field == "id"


async def test_an_order_that_came_after_a_cycle_was_not_there_then(api: Api) -> None:
    revision = await join(api, "eu", cpu=1)
    await api.write({keys.cycle(1, 7): a_cycle(7, revision)})
    error = await refusal(explain(api, await submit(api, asking_for(2)), cycle=7))
    assert isinstance(error, errors.NotFound)
    assert "when cycle 7 was decided" in str(error)


async def test_an_unknown_cycle_is_not_found(api: Api) -> None:
    waits = await submit(api, asking_for(2))
    error = await refusal(explain(api, waits, cycle=99))
    assert isinstance(error, errors.NotFound)
    assert error.field == "cycle"
    assert isinstance(await refusal(explain(api, waits, cycle=-1)), errors.Invalid)


async def test_history_that_is_compacted_is_said_to_be_gone(api: Api) -> None:
    waits = await submit(api, asking_for(2))
    await api.write({keys.cycle(1, 7): a_cycle(7, api.cache.revision)})
    await api.store.compact(await join(api, "eu", cpu=1))
    error = await refusal(explain(api, waits, cycle=7))
    assert isinstance(error, errors.Compacted)
    assert "does not remember" in str(error)
    assert (await explain(api, waits)).groups


async def test_an_order_that_is_over_has_nothing_to_explain(api: Api) -> None:
    done = await submit(api, asking_for(1))
    status = OrderStatus(order=done, epoch=1, phase="Succeeded", counts=Counts(succeeded=1))
    await api.write({keys.order_status(done): status})
    found = await explain(api, done)
    assert (found.conclusion, list(found.groups)) == ("The order is over: Succeeded.", [])


async def plan(api: Api, order: orders_pb2.Order, **changes: Any) -> Any:
    return await api.orders.Plan(orders_pb2.PlanRequest(order=order, **changes))


async def test_a_plan_says_where_an_order_would_go_and_writes_nothing(api: Api) -> None:
    await join(api, "eu", cpu=4)
    before = await api.store.revision()
    found = await plan(api, asking_for(1, count=3))
    assert found.placeable
    assert [(one.job, one.count, one.target, one.start_in_seconds) for one in found.placements] == [
        ("job-1", 3, "eu", 0)
    ]
    assert await api.store.revision() == before


async def test_a_plan_that_cannot_be_says_why(api: Api) -> None:
    await join(api, "eu", cpu=4)
    found = await plan(api, asking_for(8))
    assert (found.placeable, list(found.placements)) == (False, [])
    [verdict] = found.groups[0].targets
    assert (verdict.target, verdict.filter, dict(verdict.missing)) == ("eu", "InsufficientCapacity", {"cpu": 4})


async def test_the_world_of_a_plan_may_have_targets_more_and_targets_less(api: Api) -> None:
    await join(api, "eu", cpu=4)
    more = targets_pb2.Target(name="new", driver="process")
    more.capacity.of["cpu"] = 16
    found = await plan(api, asking_for(8, target_policy="strict:new"), with_targets=[more])
    assert [(one.target, one.count) for one in found.placements] == [("new", 1)]
    assert not (await plan(api, asking_for(1), without_targets=["eu"])).placeable
    assert (await plan(api, asking_for(1))).placeable


async def test_a_plan_may_ask_about_another_priority(api: Api) -> None:
    await join(api, "eu", cpu=2)
    await submit(api, asking_for(2, priority=60))
    urgent = await plan(api, asking_for(2), priority=90)
    assert [one.start_in_seconds for one in urgent.placements] == [0]
    patient = await plan(api, asking_for(2), priority=10)
    assert all(one.start_in_seconds > 0 for one in patient.placements) or not patient.placeable


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (orders_pb2.PlanRequest(order=asking_for(1, priority=101)), "priority"),
        (orders_pb2.PlanRequest(order=asking_for(1), priority=0), "priority"),
        (orders_pb2.PlanRequest(order=an_order(packet="unknown")), "packet"),
        (orders_pb2.PlanRequest(), "packet"),
        (orders_pb2.PlanRequest(order=asking_for(1, target_policy="strict:nowhere")), "target_policy"),
        (orders_pb2.PlanRequest(order=asking_for(1, digest="d")), "digest"),
        (orders_pb2.PlanRequest(order=asking_for(1), without_targets=["nowhere"]), "without_targets[0]"),
        (orders_pb2.PlanRequest(order=asking_for(1), with_targets=[targets_pb2.Target()]), "with_targets[0].name"),
        (
            orders_pb2.PlanRequest(order=asking_for(1), with_targets=[targets_pb2.Target(name="a")] * 2),
            "with_targets",
        ),
    ],
)
async def test_a_plan_is_admitted_like_a_submit(api: Api, request_: orders_pb2.PlanRequest, field: str) -> None:
    error = await refusal(api.orders.Plan(request_))
    assert isinstance(error, errors.Refused)
    assert error.field == field


async def test_a_plan_keeps_to_the_quota_of_its_owner_and_takes_none_of_it(api: Api) -> None:
    await api.write({keys.SETTINGS: Settings(quotas={"ada": Quota(orders=1)})})
    for _ in range(3):
        await plan(api, asking_for(1, owner="ada"))
    await submit(api, asking_for(1, owner="ada", identity=mint.make()))
    assert isinstance(await refusal(plan(api, asking_for(1, owner="ada"))), errors.LimitExceeded)
