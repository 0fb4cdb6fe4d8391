"""Preemption: who is stopped for whom. What stops nobody has a file of its own, `test_preemption_in_vain.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.model.job import Job
from tests.engine_stage import Stage, a_job

ROOT = Path(__file__).parents[3]

HIGH: dict[str, Any] = {"priority": 90, "preempts": True}


def lower(**said: Any) -> Job:
    return a_job("low", preemptible=True, **said)


def test_an_order_that_preempts_stops_lower_work_and_runs_when_that_is_gone() -> None:
    stage = Stage()
    stage.target("t1")
    low = stage.submit((1, lower(requests={"cpu": 4})))
    stage.cycle()
    high = stage.submit((1, a_job()), **HIGH)
    decision = stage.cycle()
    assert [eviction.order for eviction in decision.evictions] == [low]
    assert stage.live(low)[0].want == "stop"
    assert stage.live(low)[0].reason == "Preempted"
    stage.stop()
    stage.cycle()
    assert stage.live(high)
    assert not stage.live(low)
    stage.end(*stage.live(high))
    stage.cycle()
    assert [one.tasks[0].attempt for one in stage.live(low)] == [2]


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (lower(), {"priority": 90}),
        (lower(), {"priority": 95}),
        (a_job("low"), {"priority": 50}),
    ],
    ids=["equal", "higher", "not preemptible"],
)
def test_only_lower_and_preemptible_work_is_stopped(job: Job, said: dict[str, Any]) -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((4, job), **said)
    stage.cycle()
    stage.submit((1, a_job()), **HIGH)
    decision = stage.cycle()
    assert not decision.evictions
    assert decision.refused == {"InsufficientCapacity": 1}


def test_an_order_that_does_not_preempt_stops_nobody() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((4, lower()))
    stage.cycle()
    stage.submit((1, a_job()), priority=90)
    assert not stage.cycle().evictions


def test_nobody_is_stopped_while_there_is_room() -> None:
    stage = Stage()
    stage.target("t1")
    stage.target("t2")
    stage.submit((4, lower()), target_policy="strict:t1")
    stage.cycle()
    high = stage.submit((4, a_job()), **HIGH)
    assert not stage.cycle().evictions
    assert stage.where(high) == {"t2": 4}


def test_of_all_targets_that_one_is_cleared_where_the_fewest_have_to_stop() -> None:
    stage = Stage()
    stage.target("t1")
    stage.target("t2")
    stage.submit((4, lower()), target_policy="strict:t1")
    one = stage.submit((1, lower(requests={"cpu": 4})), target_policy="strict:t2")
    stage.cycle()
    stage.submit((1, a_job(requests={"cpu": 4})), **HIGH)
    assert [eviction.order for eviction in stage.cycle().evictions] == [one]


def test_one_large_task_is_stopped_rather_than_several_small_ones() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((2, lower()))
    large = stage.submit((1, lower(requests={"cpu": 2})))
    stage.cycle()
    stage.submit((1, a_job(requests={"cpu": 2})), **HIGH)
    assert [eviction.order for eviction in stage.cycle().evictions] == [large]


def test_of_equals_the_youngest_is_stopped_on_one_target_and_between_targets() -> None:
    stage = Stage()
    stage.target("t1", cpu=2)
    stage.target("t2", cpu=2)
    ages = []
    for at in range(4):
        ages.append(stage.submit((1, lower()), target_policy=f"strict:t{1 + at % 2}"))
        stage.cycle()
        stage.pass_seconds(10)
    for _ in range(4):
        stage.submit((1, a_job()), **HIGH)
    stopped = [eviction.order for eviction in stage.cycle().evictions]
    assert stopped == list(reversed(ages))


def test_nobody_is_stopped_that_is_not_needed() -> None:
    """Small ones help with every quantity a little; two others help with one quantity wholly."""
    stage = Stage()
    stage.target("t1", capacity={"cpu": 7, "memory": 7})
    small = stage.submit((3, lower(requests={"cpu": 1, "memory": 1})))
    wide = stage.submit((1, lower(requests={"cpu": 4})))
    deep = stage.submit((1, lower(requests={"memory": 4})))
    stage.cycle()
    stage.submit((1, a_job(requests={"cpu": 4, "memory": 4})), **HIGH)
    stopped = {eviction.order for eviction in stage.cycle().evictions}
    assert stopped == {wide, deep}
    assert len(stage.live(small)) == 3


def test_nobody_is_stopped_twice_nor_anybody_else_while_he_stops() -> None:
    stage = Stage()
    stage.target("t1")
    low = stage.submit((4, lower()))
    stage.cycle()
    stage.submit((1, a_job()), **HIGH)
    assert len(stage.cycle().evictions) == 1
    for _ in range(3):
        assert not stage.cycle().evictions
    assert [one.want for one in stage.live(low)].count("stop") == 1


def test_each_waiting_task_has_its_own_room_made() -> None:
    stage = Stage()
    stage.target("t1")
    low = stage.submit((4, lower()))
    stage.cycle()
    high = stage.submit((3, a_job()), **HIGH)
    assert len(stage.cycle().evictions) == 3
    assert not stage.cycle().evictions
    stage.stop()
    stage.cycle()
    assert (len(stage.live(high)), len(stage.live(low))) == (3, 1)


def test_room_that_was_made_goes_to_nobody_else() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((1, lower(requests={"cpu": 3})))
    stage.cycle()
    high = stage.submit((1, a_job(requests={"cpu": 4})), **HIGH)
    sneaking = [stage.submit((1, a_job(time_limit=limit))) for limit in (None, 1, 3600)]
    stage.cycle()
    assert not any(stage.live(order) for order in sneaking)
    stage.stop()
    stage.cycle()
    assert stage.live(high)


def test_nobody_is_stopped_in_vain() -> None:
    """Even all that may be stopped would not make room enough."""
    stage = Stage()
    stage.target("t1")
    stage.submit((2, a_job()))
    stage.submit((2, lower()))
    stage.cycle()
    stage.submit((1, a_job(requests={"cpu": 3})), **HIGH)
    assert not stage.cycle().evictions


def test_slots_are_made_free_as_well() -> None:
    stage = Stage()
    stage.target("t1", cpu=100, max_fulfilments=2)
    low = stage.submit((2, lower()))
    stage.cycle()
    stage.submit((1, a_job()), **HIGH)
    assert [eviction.order for eviction in stage.cycle().evictions] == [low]


def test_a_rule_that_lowers_priority_makes_work_that_may_be_stopped() -> None:
    stage = Stage()
    stage.target("t1")
    stage.rule("guests-last", "order.owner == 'guest'", priority=-80)
    stage.submit((4, lower()), owner="guest", priority=95)
    stage.cycle()
    stage.submit((1, a_job()), **HIGH)
    assert len(stage.cycle().evictions) == 1


def test_on_one_target_the_lowest_priority_is_stopped_though_more_have_to_stop() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((1, lower(requests={"cpu": 2})), priority=40)
    lowest = stage.submit((2, lower()), priority=10)
    stage.cycle()
    stage.submit((1, a_job(requests={"cpu": 2})), **HIGH)
    assert [eviction.order for eviction in stage.cycle().evictions] == [lowest] * 2


def test_between_targets_the_lowest_priority_is_stopped_though_more_have_to_stop() -> None:
    stage = Stage()
    stage.target("t1")
    stage.target("t2")
    stage.submit((1, lower(requests={"cpu": 4})), priority=40, target_policy="strict:t1")
    lowest = stage.submit((4, lower()), priority=10, target_policy="strict:t2")
    stage.cycle()
    stage.submit((1, a_job(requests={"cpu": 4})), **HIGH)
    assert [eviction.order for eviction in stage.cycle().evictions] == [lowest] * 4


def test_between_targets_as_few_as_will_do_are_stopped_though_they_are_older() -> None:
    stage = Stage()
    stage.target("t1", cpu=2)
    stage.target("t2", cpu=2)
    old = stage.submit((1, lower(requests={"cpu": 2})), target_policy="strict:t2")
    stage.cycle()
    stage.pass_seconds(10)
    stage.submit((2, lower()), target_policy="strict:t1")
    stage.cycle()
    stage.submit((1, a_job(requests={"cpu": 2})), **HIGH)
    assert [eviction.order for eviction in stage.cycle().evictions] == [old]


def test_exclusive_work_stops_all_neighbours() -> None:
    stage = Stage()
    stage.target("t1")
    low = stage.submit((2, lower()))
    stage.cycle()
    high = stage.submit((1, a_job(exclusive=True)), **HIGH)
    assert [eviction.order for eviction in stage.cycle().evictions] == [low] * 2
    stage.stop()
    stage.cycle()
    assert (len(stage.live(high)), len(stage.live(low))) == (1, 0)


def test_exclusive_work_stops_nobody_beside_a_neighbour_who_stays() -> None:
    stage = Stage()
    stage.target("t1")
    stage.target("t2")
    stage.submit((1, a_job()), target_policy="strict:t1")
    stage.submit((3, lower()), target_policy="strict:t1")
    stage.submit((4, a_job()), target_policy="strict:t2")
    stage.cycle()
    stage.submit((1, a_job(exclusive=True)), **HIGH)
    assert not stage.cycle().evictions


def test_a_gang_stops_others_only_when_all_of_it_goes_in() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((1, a_job()))
    low = stage.submit((3, lower()))
    stage.cycle()
    stage.submit((4, a_job()), gang=True, **HIGH)
    assert not stage.cycle().evictions
    gang = stage.submit((3, a_job()), gang=True, **HIGH)
    assert [eviction.order for eviction in stage.cycle().evictions] == [low] * 3
    stage.stop()
    stage.cycle()
    assert len(stage.live(gang)) == 3


def test_a_gang_uses_free_room_before_it_stops_anybody() -> None:
    stage = Stage()
    stage.target("t1")
    low = stage.submit((3, lower()))
    stage.cycle()
    gang = stage.submit((2, a_job()), gang=True, **HIGH)
    assert len(stage.cycle().evictions) == 1
    stage.stop()
    stage.cycle()
    assert (len(stage.live(gang)), len(stage.live(low))) == (2, 2)


def test_an_eviction_names_the_order_that_asked() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((4, lower()))
    stage.cycle()
    first = stage.submit((1, a_job()), **HIGH)
    second = stage.submit((2, a_job()), **HIGH)
    assert [eviction.by for eviction in stage.cycle().evictions] == [first, second, second]


def digest_of_evictions() -> str:
    """What a cycle decides that has to choose between many victims of the same worth."""
    stage = Stage()
    for target in range(4):
        stage.target(f"t{target}", capacity={"cpu": 4, "memory": 4})
        for _ in range(4):
            stage.submit((1, lower(requests={"cpu": 1, "memory": 1})), target_policy=f"strict:t{target}")
    stage.cycle()
    for at in range(5):
        stage.submit((1, a_job(requests={"cpu": 1 + at % 2, "memory": 1})), **HIGH)
    decision = stage.cycle()
    assert len(decision.evictions) == 7
    return decision.digest()


def test_who_is_stopped_does_not_depend_on_how_a_process_hashes() -> None:
    script = "from tests.unit.engine.test_preemption import digest_of_evictions; print(digest_of_evictions())"
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


def test_what_is_promised_counts_once_against_the_limit_of_a_rule() -> None:
    stage = Stage()
    stage.rule("licences", "job.labels.kind == 'licensed'", limit=2)
    stage.target("t1")
    stage.target("t2")
    stage.submit((8, lower()))
    stage.cycle()
    asking = [
        stage.submit((1, a_job(name, requests={"cpu": cpu}, labels={"kind": "licensed"})), **HIGH)
        for name, cpu in (("one", 1), ("two", 2))
    ]
    assert {eviction.by for eviction in stage.cycle().evictions} == set(asking)
    stage.stop()
    stage.cycle()
    assert all(stage.live(order) for order in asking)
