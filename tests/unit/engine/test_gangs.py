"""Gangs: all of an order or nothing of it."""

from __future__ import annotations

import pytest

from controlplane.model.settings import Quota
from tests.engine_stage import Stage, a_job, label


def test_a_gang_waits_until_all_of_it_fits_at_once() -> None:
    stage = Stage()
    stage.target("t1")
    gang = stage.submit((3, a_job("small")), (2, a_job("large", requests={"cpu": 2})), gang=True)
    assert stage.cycle().refused == {"GangIncomplete": 5}
    assert not stage.live(gang)
    stage.target("t2")
    decision = stage.cycle()
    assert decision.placed() == 5
    assert all(placement.gang for placement in decision.placements)


def test_a_gang_that_does_not_fit_leaves_nothing_behind_for_what_comes_after() -> None:
    stage = Stage(reservations=0)
    stage.target("t1")
    stage.submit((5, a_job()), gang=True, priority=90)
    other = stage.submit((4, a_job()))
    stage.cycle()
    assert stage.where(other) == {"t1": 4}


def test_large_parts_of_a_gang_are_not_shut_out_by_its_small_ones() -> None:
    stage = Stage()
    stage.target("t1")
    stage.target("t2")
    gang = stage.submit((4, a_job("small")), (1, a_job("large", requests={"cpu": 4})), gang=True)
    stage.cycle()
    assert len(stage.live(gang)) == 5


def test_parts_of_a_gang_find_each_other_in_whatever_order_they_are_named() -> None:
    stage = Stage()
    stage.target("t1")
    stage.target("t2")
    follower = a_job("follower", affinity=(label("role", "In", "leader"),))
    gang = stage.submit((2, follower), (1, a_job("leader", labels={"role": "leader"})), gang=True)
    stage.cycle()
    assert len(stage.live(gang)) == 3
    assert len(stage.where(gang)) == 1


def test_a_gang_larger_than_the_world_keeps_nobody_else_waiting() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((9, a_job()), gang=True, priority=90)
    other = stage.submit((4, a_job()))
    assert stage.cycle().refused == {"GangIncomplete": 9}
    assert stage.where(other) == {"t1": 4}


def test_gangs_larger_than_the_world_use_up_no_reservation() -> None:
    stage = Stage(reservations=1)
    stage.target("t1")
    running = stage.submit((1, a_job(time_limit=60)))
    stage.cycle()
    stage.submit((9, a_job()), gang=True, priority=90)
    large = stage.submit((1, a_job(requests={"cpu": 4})), priority=80)
    small = stage.submit((1, a_job()))
    stage.cycle()
    assert not stage.live(small)
    stage.end(*stage.live(running))
    stage.cycle()
    assert stage.live(large)


def test_room_is_kept_for_a_gang_until_all_of_it_fits() -> None:
    """A stream of small tasks with time limits would take every place that becomes free."""
    stage = Stage()
    stage.target("t1", cpu=2)
    stage.target("t2", cpu=2)
    for at in range(4):
        stage.submit((1, a_job(time_limit=100 + 10 * at)))
    stage.cycle()
    gang = stage.submit((4, a_job("part")), gang=True)
    for _ in range(14):
        stage.pass_seconds(10)
        stage.submit((1, a_job(time_limit=100)))
        stage.cycle()
    assert len(stage.live(gang)) == 4


@pytest.mark.parametrize("quota", [Quota(live_tasks=3), Quota(quantities={"cpu": 3})])
def test_a_gang_beyond_its_owners_quota_does_not_go_in_part(quota: Quota) -> None:
    stage = Stage(quotas={"somebody": quota})
    stage.target("t1", cpu=100)
    stage.submit((4, a_job()), gang=True)
    assert stage.cycle().refused == {"OwnerQuota": 4}


def test_a_gang_larger_than_the_budget_goes_when_it_comes_first() -> None:
    stage = Stage(cycle_budget=2)
    stage.target("t1", cpu=100)
    before = stage.submit((1, a_job()), priority=90)
    gang = stage.submit((5, a_job()), gang=True, priority=80)
    after = stage.submit((1, a_job()), priority=70)
    stage.cycle()
    assert [len(stage.live(order)) for order in (before, gang, after)] == [1, 0, 0]
    stage.cycle()
    assert [len(stage.live(order)) for order in (before, gang, after)] == [1, 5, 0]
    stage.cycle()
    assert [len(stage.live(order)) for order in (before, gang, after)] == [1, 5, 1]


def test_what_is_left_of_a_gang_after_a_failure_goes_together_too() -> None:
    stage = Stage()
    stage.target("t1", cpu=3)
    gang = stage.submit((3, a_job()), gang=True)
    stage.cycle()
    stage.end(*stage.live(gang)[:2], phase="Failed", decision="retry")
    stage.submit((1, a_job()), priority=90)
    stage.cycle()
    assert len(stage.live(gang)) == 1
    stage.target("t2", cpu=1)
    stage.cycle()
    assert len(stage.live(gang)) == 3


@pytest.mark.parametrize(("time_limit", "goes"), [(90, True), (100, True), (101, False), (None, False)])
def test_work_that_is_over_in_time_goes_on_beside_a_waiting_gang(time_limit: float | None, goes: bool) -> None:
    """t1 is free in 100 seconds and t2 in 50: then all of the gang goes in."""
    stage = Stage()
    for name, limit in (("t1", 100), ("t2", 50)):
        stage.target(name)
        stage.submit((1, a_job(requests={"cpu": 3}, time_limit=limit)), target_policy=f"strict:{name}")
    stage.cycle()
    gang = stage.submit((2, a_job("part", requests={"cpu": 4})), gang=True, priority=90)
    small = stage.submit((2, a_job(time_limit=time_limit)))
    stage.cycle()
    assert len(stage.live(small)) == (2 if goes else 0)
    stage.pass_seconds(100)
    stage.cycle()
    assert len(stage.live(gang)) == 2


def test_a_gang_keeps_no_target_behind_work_without_an_end() -> None:
    stage = Stage()
    for name, limit in (("t1", None), ("t2", 50), ("t3", 80)):
        stage.target(name)
        stage.submit((1, a_job(requests={"cpu": 1}, time_limit=limit)), target_policy=f"strict:{name}")
    stage.cycle()
    gang = stage.submit((2, a_job("part", requests={"cpu": 4})), gang=True, priority=90)
    small = stage.submit((9, a_job()))
    stage.cycle()
    assert stage.where(small) == {"t1": 3}
    stage.pass_seconds(80)
    stage.cycle()
    assert stage.where(gang) == {"t2": 1, "t3": 1}


def test_a_gang_that_never_fits_closes_nothing() -> None:
    stage = Stage()
    for name in ("t1", "t2"):
        stage.target(name)
        stage.submit((1, a_job()), target_policy=f"strict:{name}")
    stage.cycle()
    stage.submit((2, a_job("part", requests={"cpu": 4})), gang=True, priority=90)
    small = stage.submit((6, a_job()))
    stage.cycle()
    assert stage.where(small) == {"t1": 3, "t2": 3}
