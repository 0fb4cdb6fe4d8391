"""Preemption in vain: what the end of other work cannot give stops nobody, and nobody beyond what it lets begin."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.model.job import Job
from controlplane.model.settings import Quota
from tests.engine_stage import Stage, a_job

HIGH: dict[str, Any] = {"priority": 90, "preempts": True}


def lower(**said: Any) -> Job:
    return a_job("low", preemptible=True, **said)


def test_an_order_whose_unique_resource_is_held_stops_nobody() -> None:
    stage = Stage()
    stage.target("t1")
    holder = stage.submit((1, a_job(resources=("licence",))))
    low = stage.submit((3, lower()))
    stage.cycle()
    high = stage.submit((1, a_job(resources=("licence",))), **HIGH)
    for _ in range(3):
        assert not stage.cycle().evictions
    stage.end(*stage.live(holder))
    assert not stage.cycle().evictions
    assert (len(stage.live(high)), len(stage.live(low))) == (1, 3)


def test_of_several_that_need_one_unique_resource_only_the_first_stops_somebody() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((4, lower()))
    stage.cycle()
    high = stage.submit((3, a_job(resources=("licence",))), **HIGH)
    assert len(stage.cycle().evictions) == 1
    stage.stop()
    stage.cycle()
    assert len(stage.live(high)) == 1
    assert not stage.cycle().evictions


def test_an_order_beyond_its_owners_quota_stops_nobody() -> None:
    stage = Stage(quotas={"ann": Quota(live_tasks=1)})
    stage.target("t1")
    stage.submit((1, a_job()), owner="ann")
    stage.submit((3, lower()), owner="bob")
    stage.cycle()
    stage.submit((1, a_job()), owner="ann", **HIGH)
    decision = stage.cycle()
    assert not decision.evictions
    assert decision.refused == {"OwnerQuota": 1}


@pytest.mark.parametrize("quota", [Quota(live_tasks=3), Quota(quantities={"cpu": 3})], ids=["tasks", "cpu"])
def test_no_more_are_stopped_than_the_owners_quota_lets_begin(quota: Quota) -> None:
    stage = Stage(quotas={"ann": quota})
    stage.target("t1")
    stage.submit((1, a_job()), owner="ann")
    stage.submit((3, lower()), owner="bob")
    stage.cycle()
    high = stage.submit((3, a_job()), owner="ann", **HIGH)
    assert len(stage.cycle().evictions) == 2
    stage.stop()
    stage.cycle()
    assert len(stage.live(high)) == 2
    assert not stage.cycle().evictions


def test_two_orders_of_one_owner_share_the_quota_for_which_room_is_made() -> None:
    """They ask for different amounts, so that each has a queue of its own."""
    stage = Stage(quotas={"ann": Quota(live_tasks=1)})
    stage.target("t1")
    stage.submit((4, lower()), owner="bob")
    stage.cycle()
    for cpu in (1, 0.5):
        stage.submit((1, a_job(requests={"cpu": cpu})), owner="ann", **HIGH)
    assert len(stage.cycle().evictions) == 1


def test_an_order_at_the_limit_of_a_rule_stops_nobody() -> None:
    stage = Stage()
    stage.target("t1")
    stage.rule("one-film", "job.labels.team == 'film'", limit=1)
    stage.submit((1, a_job(labels={"team": "film"})))
    stage.submit((3, lower()))
    stage.cycle()
    stage.submit((1, a_job(labels={"team": "film"})), **HIGH)
    assert not stage.cycle().evictions


def test_no_more_are_stopped_than_the_limit_of_a_rule_lets_begin() -> None:
    stage = Stage()
    stage.target("t1")
    stage.rule("two-films", "job.labels.team == 'film'", limit=2)
    stage.submit((4, lower()))
    stage.cycle()
    stage.submit((4, a_job(labels={"team": "film"})), **HIGH)
    assert len(stage.cycle().evictions) == 2


def test_an_order_whose_spread_leaves_no_target_stops_nobody() -> None:
    stage = Stage()
    stage.target("t1")
    stage.target("t2")
    stage.submit((4, a_job()), target_policy="strict:t2")
    stage.cycle()
    high = stage.submit((2, a_job(spread="order")), **HIGH)
    stage.cycle()
    assert stage.where(high) == {"t1": 1}
    stage.submit((3, lower()))
    stage.cycle()
    for _ in range(3):
        assert not stage.cycle().evictions


def test_tasks_that_keep_apart_have_room_made_on_different_targets() -> None:
    stage = Stage()
    for name in ("t1", "t2"):
        stage.target(name)
        stage.submit((4, lower()), target_policy=f"strict:{name}")
    stage.cycle()
    high = stage.submit((3, a_job(spread="order")), **HIGH)
    assert sorted(eviction.target for eviction in stage.cycle().evictions) == ["t1", "t2"]
    stage.stop()
    stage.cycle()
    assert stage.where(high) == {"t1": 1, "t2": 1}
    assert not stage.cycle().evictions
