"""Room that is kept: large work is not starved by small work, and small work that is in nobody's way goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine_stage import Stage, a_job, label


def cycles_until_large_runs(stage: Stage, *, most: int) -> int | None:
    """A full target; in each cycle one small task ends, and two more want its place."""
    stage.target("t1")
    small = [stage.submit((1, a_job(time_limit=1000 + at))) for at in range(4)]
    stage.cycle()
    large = stage.submit((1, a_job(requests={"cpu": 4})))
    for cycle in range(most):
        running = [one for order in small for one in stage.live(order)]
        if running:
            stage.end(running[0])
        small.append(stage.submit((2, a_job(time_limit=2000))))
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
        stage.submit((3, a_job(time_limit=60)), target_policy=f"strict:{name}")
    stage.cycle()
    stage.submit((1, a_job(requests={"cpu": 4})), priority=90)
    small = stage.submit((2, a_job()))
    assert stage.cycle().refused == {"InsufficientCapacity": 1, "Reserved": 1}
    assert stage.where(small) == {"t2": 1}


def test_the_target_is_kept_where_room_comes_soonest() -> None:
    """Not where the least is missing."""
    stage = Stage()
    for name, used, limit in (("t1", 3, 50), ("t2", 1, 100), ("t3", 2, 200)):
        stage.target(name)
        stage.submit((used, a_job(time_limit=limit)), target_policy=f"strict:{name}")
    stage.cycle()
    stage.submit((1, a_job(requests={"cpu": 4})), priority=90)
    small = stage.submit((6, a_job()))
    stage.cycle()
    assert stage.where(small) == {"t2": 3, "t3": 2}


def test_no_target_is_kept_behind_work_without_an_end() -> None:
    """A small service makes t1 the nearest for ever; t2 is free after a while."""
    stage = Stage()
    stage.target("t1")
    stage.target("t2")
    service = stage.submit((1, a_job(requests={"cpu": 0.5})), target_policy="strict:t1")
    stage.submit((1, a_job(requests={"cpu": 4}, time_limit=100)), target_policy="strict:t2")
    stage.cycle()
    large = stage.submit((1, a_job(requests={"cpu": 4})), priority=90)
    small = stage.submit((9, a_job()))
    stage.cycle()
    assert stage.where(small) == {"t1": 3}
    stage.pass_seconds(100)
    stage.cycle()
    assert stage.where(large) == {"t2": 1}
    assert stage.live(service)


@pytest.mark.parametrize("targets", [1, 2])
def test_with_few_targets_nothing_is_closed_without_bound(targets: int) -> None:
    stage = Stage()
    for at in range(targets):
        stage.target(f"t{at}")
        stage.submit((1, a_job()), target_policy=f"strict:t{at}")
    stage.cycle()
    stage.submit((1, a_job(requests={"cpu": 4})), priority=90)
    small = stage.submit((9, a_job()))
    stage.cycle()
    assert len(stage.live(small)) == 3 * targets


def test_a_kept_target_stays_open_for_work_that_does_not_need_what_is_missing_there() -> None:
    stage = Stage()
    stage.target("t1", capacity={"cpu": 8, "gpu": 1})
    stage.submit((1, a_job(requests={"cpu": 1, "gpu": 1}, time_limit=100)))
    stage.cycle()
    asks = stage.submit((1, a_job(requests={"cpu": 2, "gpu": 1})), priority=90)
    plain = stage.submit((9, a_job()))
    stage.cycle()
    assert stage.where(plain) == {"t1": 6}, "two cpus are left for who waits for the gpu"
    stage.pass_seconds(100)
    stage.cycle()
    assert stage.live(asks)


def test_what_is_to_spare_beside_the_waiting_task_is_for_everybody() -> None:
    """In 100 seconds 10 cpus are free, of which it needs 8."""
    stage = Stage()
    stage.target("t1", cpu=12)
    stage.submit((1, a_job(requests={"cpu": 6}, time_limit=100)))
    stage.submit((1, a_job(requests={"cpu": 2})))
    stage.cycle()
    large = stage.submit((1, a_job(requests={"cpu": 8})), priority=90)
    small = stage.submit((9, a_job()))
    stage.cycle()
    assert len(stage.live(small)) == 2
    stage.pass_seconds(100)
    stage.cycle()
    assert stage.live(large)


@pytest.mark.parametrize(
    "wish",
    [{"exclusive": True}, {"anti_affinity": (label("team", "In", "x"),)}, {"spread": "order"}],
    ids=["exclusive", "anti-affinity", "spread"],
)
def test_work_that_wants_to_be_alone_is_not_starved_by_a_stream(wish: dict[str, Any]) -> None:
    """Two targets that are never empty together, and a stream of work that would fill every gap."""
    stage = Stage()
    for at in range(2):
        stage.target(f"t{at}", cpu=2)
    lonely = a_job(
        "lonely", requests={"cpu": 2 if "spread" in wish else 1}, labels={"team": "y"}, time_limit=500, **wish
    )
    stage.submit((4, a_job(time_limit=100, labels={"team": "x"})))
    stage.cycle()
    waits = stage.submit((2 if "spread" in wish else 1, lonely))
    begun = None
    for at in range(40):
        stage.pass_seconds(10)
        stage.submit((2, a_job(time_limit=70 + at, labels={"team": "x"})))
        stage.cycle()
        if len(stage.live(waits)) == (2 if "spread" in wish else 1):
            begun = at
            break
    assert begun is not None
    assert begun * 10 <= 200, "twice the longest time limit"


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
        stage.submit((1, a_job(time_limit=60)), target_policy=f"strict:t{at}")
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
    first = stage.submit((1, a_job(time_limit=5)))
    stage.cycle()
    next_one = stage.submit((1, a_job()), priority=90)
    assert stage.cycle().refused == {"TargetFull": 1}
    later = stage.submit((1, a_job(time_limit=10)))
    stage.cycle()
    stage.end(*stage.live(first))
    stage.cycle()
    assert stage.live(next_one)
    assert not stage.live(later)
