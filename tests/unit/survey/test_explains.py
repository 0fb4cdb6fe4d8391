"""Explain: which reason a waiting task hears, who stands before it, and whether waiting helps."""

from __future__ import annotations

from datetime import timedelta

import pytest

from controlplane.model import times
from controlplane.model.explanation import GroupExplanation
from controlplane.model.settings import Quota, Settings
from controlplane.model.target import TargetStatus
from controlplane.store import keys
from controlplane.survey.explaining import explain
from tests.engine_stage import Stage, a_job


def conclusion(stage: Stage, order: str) -> str:
    return explain(stage.told.ledgers, order, stage.now).conclusion


def group_of(stage: Stage, order: str) -> GroupExplanation:
    [group] = explain(stage.told.ledgers, order, stage.now).groups
    return group


def test_a_gang_beyond_its_owners_quota_hears_of_the_quota() -> None:
    stage = Stage(quotas={"ann": Quota(live_tasks=3)})
    stage.target("t1", cpu=8)
    stage.submit((1, a_job()), owner="ann")
    stage.cycle()
    gang = stage.submit((3, a_job()), gang=True, owner="ann")
    assert stage.cycle().refused == {"OwnerQuota": 3}
    group = group_of(stage, gang)
    [verdict] = group.targets
    assert group.reason == verdict.filter == "OwnerQuota"
    assert (verdict.fits, verdict.waiting_helps) == (False, True)
    assert "quota" in conclusion(stage, gang)


def test_a_gang_within_its_owners_quota_hears_of_room() -> None:
    stage = Stage(quotas={"ann": Quota(live_tasks=3)})
    stage.target("t1", cpu=2)
    gang = stage.submit((3, a_job()), gang=True, owner="ann")
    stage.cycle()
    assert group_of(stage, gang).reason == "GangIncomplete"


def test_a_task_that_backs_off_hears_when_it_is_tried_again() -> None:
    stage = Stage()
    stage.target("t1")
    order = stage.submit((1, a_job()))
    stage.cycle()
    again_at = times.show(stage.now + timedelta(hours=1))
    stage.end(*stage.live(order), phase="Failed", decision="retry", again_at=again_at)
    assert group_of(stage, order).reason == "BackingOff"
    assert conclusion(stage, order) == f"1 task waits: it failed before and is tried again at {again_at}."


def test_tasks_that_back_off_stand_apart_from_those_that_wait_for_room() -> None:
    stage = Stage()
    stage.target("t1", cpu=2)
    order = stage.submit((4, a_job()))
    stage.cycle()
    first, _ = stage.live(order)
    stage.end(first, phase="Failed", decision="retry", again_at=times.show(stage.now + timedelta(hours=1)))
    stage.submit((1, a_job()), priority=90)
    stage.cycle()
    found = explain(stage.told.ledgers, order, stage.now)
    assert {group.reason: group.count for group in found.groups} == {"InsufficientCapacity": 2, "BackingOff": 1}


def test_a_target_that_is_kept_names_the_order_that_it_is_kept_for() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((1, a_job(requests={"cpu": 2}, time_limit=100)))
    stage.cycle()
    large = stage.submit((1, a_job(requests={"cpu": 4})), priority=90)
    small = stage.submit((1, a_job()))
    stage.cycle()
    group = group_of(stage, small)
    [verdict] = group.targets
    assert group.reason == "Reserved"
    assert (verdict.fits, verdict.filter, verdict.held_by) == (False, "Reserved", (large,))
    assert large in verdict.sentence
    assert verdict.waiting_helps
    assert large in conclusion(stage, small)


def test_a_target_is_not_kept_from_the_order_that_it_is_kept_for() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((1, a_job(requests={"cpu": 2}, time_limit=100)))
    stage.cycle()
    large = stage.submit((1, a_job(requests={"cpu": 4})), priority=90)
    stage.submit((1, a_job()))
    stage.cycle()
    assert group_of(stage, large).reason == "InsufficientCapacity"


@pytest.mark.parametrize(
    ("phase", "helps"),
    [("Cordoned", False), ("Draining", False), ("Drained", False), ("Provisioning", True), ("Suspect", True)],
)
def test_waiting_does_not_help_where_a_person_has_to_act(phase: str, helps: bool) -> None:
    stage = Stage()
    stage.target("t1")
    stage.told.write({keys.target_status("t1"): TargetStatus(target="t1", epoch=1, phase=phase)})
    [verdict] = group_of(stage, stage.submit((1, a_job()))).targets
    assert (verdict.filter, verdict.waiting_helps) == ("TargetNotReady", helps)


@pytest.mark.parametrize(("limit", "helps"), [(0, False), (1, True)])
def test_waiting_does_not_help_at_a_limit_that_lets_nothing_begin(limit: int, helps: bool) -> None:
    stage = Stage()
    stage.target("t1")
    stage.rule("few-films", "job.labels.team == 'film'", limit=limit)
    stage.submit((limit, a_job(labels={"team": "film"})))
    stage.cycle()
    [verdict] = group_of(stage, stage.submit((1, a_job(labels={"team": "film"})))).targets
    assert (verdict.filter, verdict.waiting_helps) == ("RuleLimit", helps)


def waits_for_its_quota(quota: Quota, *, running: int, count: int = 1, gang: bool = False) -> GroupExplanation:
    """Tasks of two cpus each, of an owner who has so many tasks running, and then gets a quota."""
    stage = Stage()
    stage.target("t1", cpu=8)
    if running:
        stage.submit((running, a_job(requests={"cpu": 0.5})), owner="ann")
        stage.cycle()
    stage.told.write({keys.SETTINGS: Settings(quotas={"ann": quota})})
    group = group_of(stage, stage.submit((count, a_job(requests={"cpu": 2})), owner="ann", gang=gang))
    assert group.reason == "OwnerQuota"
    return group


@pytest.mark.parametrize("running", [0, 1])
@pytest.mark.parametrize("quota", [Quota(live_tasks=0), Quota(quantities={"cpu": 1})], ids=["tasks", "cpu"])
def test_waiting_does_not_help_with_a_quota_below_one_task(quota: Quota, running: int) -> None:
    """Whatever else the owner has running."""
    [verdict] = waits_for_its_quota(quota, running=running).targets
    assert (verdict.filter, verdict.waiting_helps) == ("OwnerQuota", False)


@pytest.mark.parametrize("quota", [Quota(live_tasks=1), Quota(quantities={"cpu": 2})], ids=["tasks", "cpu"])
def test_waiting_helps_when_the_quota_is_used_by_what_will_be_over(quota: Quota) -> None:
    [verdict] = waits_for_its_quota(quota, running=1).targets
    assert (verdict.filter, verdict.waiting_helps) == ("OwnerQuota", True)


@pytest.mark.parametrize(("live_tasks", "helps"), [(2, False), (3, True)])
def test_waiting_does_not_help_with_a_quota_below_the_whole_of_a_gang(live_tasks: int, helps: bool) -> None:
    [verdict] = waits_for_its_quota(Quota(live_tasks=live_tasks), running=1, count=3, gang=True).targets
    assert (verdict.filter, verdict.waiting_helps) == ("OwnerQuota", helps)
