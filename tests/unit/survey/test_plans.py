"""Plan: what a plan says of an order is what becomes of the order, when work ends at its time limit."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from controlplane.model import times
from controlplane.model.explanation import Plan
from controlplane.model.job import Job
from controlplane.model.settings import Quota
from controlplane.survey.planning import plan
from tests.engine_stage import Stage, a_job, order_of

HIGH: dict[str, Any] = {"priority": 90, "preempts": True}
# How long a test lets time pass, in seconds.
HORIZON = 150


def later(stage: Stage, seconds: float) -> str:
    return times.show(stage.now + timedelta(seconds=seconds))


def planned(stage: Stage, *jobs: tuple[int, Job], **said: Any) -> Plan:
    return plan(stage.told.ledgers, order_of(*jobs, created=times.show(stage.now), **said), stage.now)


def starts(found: Plan) -> dict[int, int]:
    """After how many seconds how many tasks start."""
    counted: Counter[int] = Counter()
    for placement in found.placements:
        counted[round(placement.start_in_seconds)] += placement.count
    return dict(counted)


def starts_in_truth(stage: Stage, *jobs: tuple[int, Job], **said: Any) -> dict[int, int]:
    """The same of a submitted order, from one cycle a second."""
    order = stage.submit(*jobs, **said)
    counted: Counter[int] = Counter()
    seen: set[str] = set()
    for second in range(HORIZON):
        stage.cycle()
        stage.stop()
        stage.cycle()
        for one in stage.live(order) if order in stage.told.ledgers.orders else ():
            counted[second] += len(one.tasks) if one.id not in seen else 0
            seen.add(one.id)
        stage.pass_seconds(1)
    return {second: count for second, count in counted.items() if count}


def comes_true(stage: Stage, expected: dict[int, int], *jobs: tuple[int, Job], **said: Any) -> Plan:
    """Plans the order, then lets the plan come true."""
    found = planned(stage, *jobs, **said)
    assert starts(found) == expected
    assert found.placeable == (sum(expected.values()) == sum(count for count, _ in jobs))
    assert starts_in_truth(stage, *jobs, **said) == expected
    return found


def test_an_order_that_preempts_starts_now_and_names_whom_it_stops() -> None:
    stage = Stage()
    stage.target("t1")
    low = stage.submit((4, a_job(preemptible=True)))
    stage.cycle()
    running = {one.id for one in stage.live(low)}
    found = comes_true(stage, {0: 2}, (2, a_job()), **HIGH)
    assert [(one.order, one.target) for one in found.evictions] == [(low, "t1")] * 2
    assert len({one.fulfilment for one in found.evictions} & running) == 2
    assert low in found.conclusion
    assert "now" in found.conclusion
    assert not found.groups


def test_an_order_that_would_preempt_in_vain_names_nobody_and_waits_for_what_it_lacks() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((1, a_job(resources=("licence",), time_limit=20)))
    stage.submit((3, a_job(preemptible=True)))
    stage.cycle()
    found = comes_true(stage, {20: 1}, (1, a_job(resources=("licence",))), **HIGH)
    assert not found.evictions


def test_shares_of_owners_go_along_with_time() -> None:
    """Ann has everything now and nothing later: then her older order goes before Bob's."""
    stage = Stage()
    stage.target("t1", cpu=2)
    stage.submit((2, a_job(time_limit=10)), owner="ann")
    stage.cycle()
    stage.submit((2, a_job(time_limit=10)), owner="ann")
    comes_true(stage, {10: 1, 20: 1}, (2, a_job(time_limit=10)), owner="bob")


@pytest.mark.parametrize("quota", [Quota(live_tasks=1), Quota(quantities={"cpu": 1})], ids=["tasks", "cpu"])
def test_quotas_go_along_with_time(quota: Quota) -> None:
    stage = Stage(quotas={"ann": quota})
    stage.target("t1")
    stage.submit((1, a_job(time_limit=10)), owner="ann")
    stage.cycle()
    comes_true(stage, {10: 1, 30: 1}, (2, a_job(time_limit=20)), owner="ann")


def test_limits_of_rules_go_along_with_time() -> None:
    stage = Stage()
    stage.target("t1")
    stage.rule("one-film", "job.labels.team == 'film'", limit=1)
    stage.submit((1, a_job(labels={"team": "film"}, time_limit=10)))
    stage.cycle()
    comes_true(stage, {10: 1, 30: 1}, (2, a_job(labels={"team": "film"}, time_limit=20)))


def test_unique_resources_go_along_with_time() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((1, a_job(resources=("licence",), time_limit=10)))
    stage.cycle()
    stage.submit((1, a_job(resources=("licence",), time_limit=20)))
    comes_true(stage, {30: 1, 45: 1}, (2, a_job(resources=("licence",), time_limit=15)))


def test_spread_goes_along_with_time() -> None:
    """The end of a stranger after 5 seconds makes nothing free."""
    stage = Stage()
    stage.target("t1")
    stage.submit((1, a_job(time_limit=5)))
    stage.cycle()
    comes_true(stage, {0: 1, 10: 1}, (2, a_job(spread="order", time_limit=10)))


def test_an_order_that_keeps_apart_and_goes_first_is_seen_to_go_on() -> None:
    """Its second task follows its first one on the only target, before the order that is planned."""
    stage = Stage()
    stage.target("t1", cpu=1)
    stage.submit((2, a_job(spread="order", time_limit=10)), priority=60)
    stage.cycle()
    comes_true(stage, {20: 1}, (1, a_job(time_limit=10)))


def test_an_order_with_a_time_is_planned_at_that_time() -> None:
    """Lower work that goes now is in its way then."""
    stage = Stage()
    stage.target("t1", cpu=1)
    stage.submit((1, a_job(time_limit=100)), priority=10)
    comes_true(stage, {100: 1}, (1, a_job()), not_before=later(stage, 30))


def test_an_order_with_a_time_starts_then_when_there_is_room() -> None:
    stage = Stage()
    stage.target("t1", cpu=1)
    found = comes_true(stage, {30: 1}, (1, a_job()), not_before=later(stage, 30))
    assert not found.groups


def test_a_waiting_order_with_a_later_time_that_goes_first_is_seen() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((1, a_job(requests={"cpu": 2}, time_limit=30)))
    stage.cycle()
    stage.submit((1, a_job(requests={"cpu": 4}, time_limit=60)), priority=90, not_before=later(stage, 20))
    comes_true(stage, {90: 1}, (1, a_job(requests={"cpu": 4})))


def test_a_task_that_backs_off_and_then_goes_first_is_seen() -> None:
    stage = Stage()
    stage.target("t1")
    first = stage.submit((1, a_job(requests={"cpu": 4}, time_limit=60)), priority=90)
    stage.cycle()
    stage.end(*stage.live(first), phase="Failed", decision="retry", again_at=later(stage, 20))
    stage.submit((1, a_job(requests={"cpu": 2}, time_limit=30)))
    stage.cycle()
    comes_true(stage, {90: 1}, (1, a_job(requests={"cpu": 4})))
