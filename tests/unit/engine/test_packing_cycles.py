"""Packed orders through whole cycles: who shares a fulfilment with whom, and what the ledgers make of it."""

from __future__ import annotations

from controlplane.model.fulfilment import Fulfilment
from tests.engine_stage import Stage, a_job


def shares(found: list[Fulfilment]) -> list[list[tuple[str, int]]]:
    return sorted(sorted((task.job, task.index) for task in one.tasks) for one in found)


def test_tasks_of_one_job_share_and_those_of_others_do_not() -> None:
    stage = Stage()
    stage.target("t", cpu=100)
    order = stage.submit((3, a_job("a")), (2, a_job("b")), pack=4)
    stage.cycle()
    assert shares(stage.live(order)) == [[("a", 0), ("a", 1), ("a", 2)], [("b", 0), ("b", 1)]]


def test_two_orders_of_the_same_work_share_nothing() -> None:
    stage = Stage()
    stage.target("t", cpu=100)
    orders = [stage.submit((2, a_job()), pack=4) for _ in range(2)]
    stage.cycle()
    for order in orders:
        assert shares(stage.live(order)) == [[("job", 0), ("job", 1)]]


def test_what_is_placed_counts_for_room_and_slots_in_the_next_cycle() -> None:
    stage = Stage()
    stage.target("t", cpu=100, max_fulfilments=2)
    order = stage.submit((12, a_job()), pack=5)
    decision = stage.cycle()
    assert [len(one.tasks) for one in stage.live(order)] == [5, 5]
    assert decision.refused == {"TargetFull": 2}
    assert stage.told.ledgers.targets["t"].used == {"cpu": 10}
    assert stage.cycle().placed() == 0
    stage.end(stage.live(order)[0])
    assert stage.cycle().placed() == 2
    assert stage.told.ledgers.targets["t"].used == {"cpu": 7}


def test_a_gang_of_packs_is_placed_whole_or_not_at_all() -> None:
    stage = Stage()
    stage.target("t", cpu=100, max_fulfilments=3)
    small, large = stage.submit((9, a_job()), gang=True, pack=4), stage.submit((5, a_job()), gang=True, pack=4)
    stage.cycle()
    assert [len(one.tasks) for one in stage.live(small)] == [4, 4, 1]
    assert stage.live(large) == []
    stage.end(*stage.live(small))
    stage.cycle()
    assert [len(one.tasks) for one in stage.live(large)] == [4, 1]


def test_who_needs_what_only_one_can_hold_goes_alone() -> None:
    stage = Stage()
    stage.target("t", cpu=100)
    order = stage.submit((3, a_job(resources=("licence",))), pack=3)
    stage.cycle()
    assert [(len(one.tasks), one.holds) for one in stage.live(order)] == [(1, ("licence",))]


def test_preemption_takes_a_pack_whole_and_gives_each_task_back() -> None:
    stage = Stage()
    stage.target("t", cpu=4)
    low = stage.submit((4, a_job(preemptible=True)), pack=4, priority=10)
    stage.cycle()
    high = stage.submit((1, a_job("other")), priority=90, preempts=True)
    stage.cycle()
    assert [one.want for one in stage.live(low)] == ["stop"]
    stage.stop()
    stage.cycle()
    assert shares(stage.live(high)) == [[("other", 0)]]
    (again,) = stage.live(low)
    assert [(task.index, task.attempt) for task in again.tasks] == [(0, 2), (1, 2), (2, 2)]
