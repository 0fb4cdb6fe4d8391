"""Room that is kept: large work is not starved by small work, and small work that is in nobody's way goes on."""

from __future__ import annotations

import pytest

from tests.engine_stage import Stage, a_job


def cycles_until_large_runs(stage: Stage, *, most: int) -> int | None:
    """A full target; in each cycle one small task ends, and two more want its place."""
    stage.target("t1")
    small = [stage.submit((4, a_job()))]
    stage.cycle()
    large = stage.submit((1, a_job(requests={"cpu": 4})))
    for cycle in range(most):
        running = [one for order in small for one in stage.live(order)]
        if running:
            stage.end(running[0])
        small.append(stage.submit((2, a_job())))
        stage.cycle()
        if stage.live(large):
            return cycle
    return None


def test_a_large_task_at_the_head_is_not_starved_by_a_stream_of_small_ones() -> None:
    assert cycles_until_large_runs(Stage(), most=40) == 3


def test_without_reservations_it_would_be() -> None:
    assert cycles_until_large_runs(Stage(reservations=0), most=40) is None


def test_small_work_goes_on_where_no_room_is_kept() -> None:
    stage = Stage()
    for name in ("t1", "t2"):
        stage.target(name)
        stage.submit((3, a_job()), target_policy=f"strict:{name}")
    stage.cycle()
    stage.submit((1, a_job(requests={"cpu": 4})), priority=90)
    small = stage.submit((2, a_job()))
    assert stage.cycle().refused == {"InsufficientCapacity": 1, "Reserved": 1}
    assert stage.where(small) == {"t2": 1}


def test_the_target_is_kept_where_the_least_is_missing() -> None:
    stage = Stage()
    for name, used in (("t1", 3), ("t2", 1), ("t3", 2)):
        stage.target(name)
        stage.submit((used, a_job()), target_policy=f"strict:{name}")
    stage.cycle()
    stage.submit((1, a_job(requests={"cpu": 4})), priority=90)
    small = stage.submit((6, a_job()))
    stage.cycle()
    assert stage.where(small) == {"t1": 1, "t3": 2}


@pytest.mark.parametrize(("time_limit", "goes"), [(50, True), (100, True), (101, False), (None, False)])
def test_kept_room_is_used_by_work_that_is_sure_to_be_over_in_time(time_limit: float | None, goes: bool) -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((1, a_job(requests={"cpu": 3}, time_limit=100)))
    stage.cycle()
    large = stage.submit((1, a_job(requests={"cpu": 4})), priority=90)
    small = stage.submit((1, a_job(time_limit=time_limit)))
    stage.cycle()
    assert bool(stage.live(small)) == goes
    stage.pass_seconds(100)
    stage.cycle()
    assert stage.live(large)


def test_where_nobody_knows_when_room_comes_nothing_is_sure_to_be_over_in_time() -> None:
    stage = Stage()
    stage.target("t1")
    endless = stage.submit((1, a_job(requests={"cpu": 3})))
    stage.cycle()
    large = stage.submit((1, a_job(requests={"cpu": 4})), priority=90)
    small = stage.submit((1, a_job(time_limit=3600)))
    assert stage.cycle().refused == {"InsufficientCapacity": 1, "Reserved": 1}
    stage.end(*stage.live(endless))
    stage.cycle()
    assert stage.live(large)
    assert not stage.live(small)


def test_no_room_is_kept_for_what_no_target_could_ever_hold() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((1, a_job()))
    stage.cycle()
    stage.submit((1, a_job(requests={"cpu": 5})), priority=90)
    small = stage.submit((3, a_job()))
    stage.cycle()
    assert stage.where(small) == {"t1": 3}


def test_no_more_than_a_part_of_all_targets_is_kept() -> None:
    stage = Stage(reservations=100)
    for at in range(8):
        stage.target(f"t{at}")
        stage.submit((1, a_job()), target_policy=f"strict:t{at}")
    stage.cycle()
    for at in range(8):
        stage.submit((1, a_job(requests={"cpu": 4, "memory": 0}, time_limit=1000 + at)), priority=90)
    small = stage.submit((99, a_job()))
    stage.cycle()
    assert len(stage.where(small)) == 8 - (1 + 8 // 4)


def test_a_full_target_that_runs_few_tasks_is_kept_as_well() -> None:
    """It lacks slots, not quantities."""
    stage = Stage()
    stage.target("t1", max_fulfilments=1)
    first = stage.submit((1, a_job()))
    stage.cycle()
    next_one = stage.submit((1, a_job()), priority=90)
    assert stage.cycle().refused == {"TargetFull": 1}
    later = stage.submit((1, a_job(time_limit=10)))
    stage.cycle()
    stage.end(*stage.live(first))
    stage.cycle()
    assert stage.live(next_one)
    assert not stage.live(later)
