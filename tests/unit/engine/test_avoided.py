"""Targets that the next attempt of a task avoids, and the one where its user sends it."""

from __future__ import annotations

import msgspec
import pytest

from controlplane.model import times
from controlplane.model.explanation import GroupExplanation
from controlplane.model.fulfilment import Ended, EndedTask, Fulfilment
from controlplane.model.order import Move, Order
from controlplane.model.resource import Resource
from controlplane.store import keys
from controlplane.survey.explaining import explain
from controlplane.survey.planning import plan
from tests.engine_stage import Stage, a_job, order_of


def end(stage: Stage, one: Fulfilment, decision: str = "retry", avoid: tuple[str, ...] = ()) -> None:
    (task,) = one.tasks
    ended = EndedTask(
        job=task.job, index=task.index, attempt=task.attempt, phase="Failed", decision=decision, avoid=avoid
    )
    record = Ended(id=one.id, order=one.order, target=one.target, epoch=1, cycle=1, tasks=(ended,), ended="")
    stage.told.write({keys.ended(one.order, one.id): record, keys.desired(one.target, one.id): None})


def two_targets() -> Stage:
    stage = Stage()
    stage.target("t1", cpu=1)
    stage.target("t2", cpu=4)
    return stage


def reasons(stage: Stage, order: str) -> dict[str, str]:
    (group,) = groups(stage, order)
    return {verdict.target: verdict.filter or "" for verdict in group.targets}


def groups(stage: Stage, order: str) -> tuple[GroupExplanation, ...]:
    return explain(stage.told.ledgers, order, stage.now).groups


def fail_on(stage: Stage, order: str, target: str, avoid: tuple[str, ...]) -> None:
    (one,) = stage.live(order)
    assert one.target == target
    end(stage, one, avoid=avoid)


def test_a_task_does_not_go_back_to_a_target_that_it_avoids() -> None:
    stage = two_targets()
    order = stage.submit((1, a_job(prefer=(("t1",),))))
    stage.cycle()
    fail_on(stage, order, "t1", ("t1",))
    stage.cycle()
    assert stage.where(order) == {"t2": 1}


def test_it_waits_for_another_target_that_is_full_and_says_so() -> None:
    stage = two_targets()
    stage.submit((4, a_job()), target_policy="strict:t2")
    order = stage.submit((1, a_job()), target_policy=None, priority=10)
    stage.cycle()
    fail_on(stage, order, "t1", ("t1",))
    assert stage.cycle().refused == {"InsufficientCapacity": 1}
    assert reasons(stage, order) == {"t1": "AvoidedTarget", "t2": "InsufficientCapacity"}


@pytest.mark.parametrize("change", ["gone", "not ready", "closed by policy", "forbidden by a rule"])
def test_without_another_target_it_goes_back(change: str) -> None:
    stage = two_targets()
    policy = "strict:t1" if change == "closed by policy" else None
    order = stage.submit((1, a_job(prefer=(("t1",),))), target_policy=policy)
    stage.cycle()
    fail_on(stage, order, "t1", ("t1", "t0"))
    if change == "gone":
        stage.told.write({keys.config("targets", "t2"): None})
    elif change == "not ready":
        stage.told.write({keys.live("t2"): None})
    elif change == "forbidden by a rule":
        stage.rule("no", "target.name == 't2'", forbid=True)
    stage.cycle()
    assert stage.where(order) == {"t1": 1}


@pytest.mark.parametrize("change", ["too small", "without such a quantity", "closed by a limit"])
def test_it_does_not_wait_for_a_target_that_could_never_hold_it(change: str) -> None:
    stage = Stage()
    other = {"too small": {"cpu": 1, "gpu": 1}, "without such a quantity": {"cpu": 4}}
    stage.target("t1", capacity={"cpu": 4, "gpu": 1})
    stage.target("t2", capacity=other.get(change, {"cpu": 4, "gpu": 1}))
    order = stage.submit((1, a_job(requests={"cpu": 2, "gpu": 1}, prefer=(("t1",),))))
    stage.cycle()
    fail_on(stage, order, "t1", ("t1",))
    if change == "closed by a limit":
        stage.rule("none", "target.name == 't2'", limit=0)
    assert reasons(stage, order)["t1"] == ""
    stage.cycle()
    assert stage.where(order) == {"t1": 1}


def test_it_waits_for_a_target_that_is_large_enough_and_full_beside_one_that_is_too_small() -> None:
    stage = two_targets()
    stage.target("t3", cpu=0.5)
    stage.submit((4, a_job()), target_policy="strict:t2")
    order = stage.submit((1, a_job()), priority=10)
    stage.cycle()
    fail_on(stage, order, "t1", ("t1",))
    stage.cycle()
    assert stage.live(order) == []
    assert reasons(stage, order)["t1"] == "AvoidedTarget"


def test_others_of_the_same_job_may_go_where_one_may_not() -> None:
    stage = two_targets()
    order = stage.submit((3, a_job(prefer=(("t1",),))))
    stage.cycle()
    for one in stage.live(order):
        end(stage, one, avoid=("t1",) if one.target == "t1" else ())
    # One may not go to t1, two may go anywhere.
    assert sorted(group.count for group in groups(stage, order)) == [1, 2]
    stage.cycle()
    assert stage.where(order) == {"t1": 1, "t2": 2}
    assert {one.tasks[0].attempt for one in stage.live(order)} == {2}
    avoiding = {index for index, _ in stage.told.ledgers.orders[order].jobs["job"].hints.items()}
    assert all(one.target == "t2" for one in stage.live(order) if one.tasks[0].index in avoiding)


def test_a_part_of_a_gang_avoids_a_target_too() -> None:
    stage = two_targets()
    order = stage.submit((2, a_job(prefer=(("t1",),))), gang=True)
    stage.cycle()
    for one in stage.live(order):
        end(stage, one, avoid=(one.target,))
    stage.target("t3", cpu=1)
    stage.cycle()
    assert sum(stage.where(order).values()) == 2
    for one in stage.live(order):
        assert one.target not in stage.told.ledgers.orders[order].jobs["job"].hint(one.tasks[0].index).avoid


def changed(stage: Stage, order: str, **said: object) -> Order:
    new = msgspec.structs.replace(stage.told.ledgers.orders[order].order, **said)
    stage.told.write({keys.order(order): new})
    return new


@pytest.mark.parametrize("begun", [False, True])
def test_a_waiting_task_goes_where_its_user_sends_it(begun: bool) -> None:
    stage = two_targets()
    order = stage.submit((2, a_job(prefer=(("t2",),))), not_before=None if begun else "2100-01-01T00:00:00.000Z")
    stage.cycle()
    for one in stage.live(order):
        end(stage, one)
    moves = (Move(job="job", index=1, attempt=int(begun), to="t1"),)
    changed(stage, order, moves=moves, not_before=None)
    stage.cycle()
    assert {(one.tasks[0].index, one.target) for one in stage.live(order)} == {(0, "t2"), (1, "t1")}
    assert {one.tasks[0].attempt for one in stage.live(order)} == {1 + begun}


def test_tasks_get_the_resources_that_their_order_was_given_since() -> None:
    stage = two_targets()
    stage.target("t3", default_time_limit=30)
    more = Resource(name="licence", key="LICENCE", value="1", unique=True)
    orders = [stage.submit((1, a_job(time_limit=limit)), target_policy="strict:t3") for limit in (None, 5)]
    for order in orders:
        changed(stage, order, resources=(more,))
    stage.cycle()
    (one,) = [found for order in orders for found in stage.live(order)]
    assert (one.holds, one.jobs["job"].environment) == (("licence",), {"LICENCE": "1"})
    assert one.jobs["job"].time_limit == 30
    end(stage, one, "done")
    stage.told.write({keys.claim("licence"): None})
    stage.cycle()
    (other,) = stage.live(orders[1])
    assert other.jobs["job"].time_limit == 5


def test_a_forecast_knows_the_time_limit_that_a_target_gives() -> None:
    stage = Stage()
    stage.target("t1", cpu=1, default_time_limit=30)
    stage.submit((1, a_job()))
    asked = order_of((1, a_job()), created=times.show(stage.now))
    found = plan(stage.told.ledgers, asked, stage.now)
    assert found.placeable
    assert [round(float(one.start_in_seconds)) for one in found.placements] == [30]
    stage.target("t1", cpu=1)
    assert not plan(stage.told.ledgers, asked, stage.now).placeable


def test_a_held_task_says_what_it_waits_for() -> None:
    stage = two_targets()
    order = stage.submit((1, a_job()))
    stage.cycle()
    (one,) = stage.live(order)
    end(stage, one, "hold")
    assert explain(stage.told.ledgers, order, stage.now).conclusion.startswith("1 task is held until")
