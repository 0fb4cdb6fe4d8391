"""Who is served first, and who may not go although there is room."""

from __future__ import annotations

import pytest

from controlplane.model.settings import Quota
from tests.engine_stage import Stage, a_job


def test_the_higher_priority_goes_first_whatever_the_age() -> None:
    stage = Stage()
    stage.target("t1")
    low, high = stage.submit((3, a_job()), priority=10), stage.submit((3, a_job()), priority=90)
    stage.cycle()
    assert (stage.where(high).total(), stage.where(low).total()) == (3, 1)


def test_two_owners_get_the_same_share_of_what_is_scarce() -> None:
    stage = Stage()
    stage.target("t1", cpu=10)
    ann, bob = stage.submit((20, a_job()), owner="ann"), stage.submit((20, a_job()), owner="bob")
    stage.cycle()
    assert (stage.where(ann).total(), stage.where(bob).total()) == (5, 5)


def test_who_has_more_already_gets_less_of_what_is_left() -> None:
    stage = Stage()
    stage.target("t1", cpu=10)
    before = stage.submit((4, a_job()), owner="ann")
    stage.cycle()
    ann, bob = stage.submit((20, a_job()), owner="ann"), stage.submit((20, a_job()), owner="bob")
    stage.cycle()
    assert stage.where(before).total() + stage.where(ann).total() == stage.where(bob).total() == 5


def test_shares_are_compared_in_what_each_owner_uses_most_of() -> None:
    """The example of the DRF paper: 9 cpu and 18 memory, tasks of (1, 4) and (3, 1)."""
    stage = Stage(reservations=0)
    stage.target("t1", capacity={"cpu": 9, "memory": 18})
    ann = stage.submit((20, a_job(requests={"cpu": 1, "memory": 4})), owner="ann")
    bob = stage.submit((20, a_job(requests={"cpu": 3, "memory": 1})), owner="bob")
    stage.cycle()
    assert (stage.where(ann).total(), stage.where(bob).total()) == (3, 2)


def test_fairness_does_not_reach_across_priorities() -> None:
    stage = Stage()
    stage.target("t1", cpu=10)
    ann = stage.submit((20, a_job()), owner="ann", priority=60)
    stage.submit((20, a_job()), owner="bob", priority=50)
    stage.cycle()
    assert stage.where(ann).total() == 10


def test_of_one_owner_the_earliest_deadline_goes_before_age_and_age_before_nothing() -> None:
    stage = Stage()
    stage.target("t1", cpu=1)
    old = stage.submit((1, a_job()))
    stage.pass_seconds(10)
    later = stage.submit((1, a_job()), deadline=2000)
    sooner = stage.submit((1, a_job()), deadline=1000)
    young = stage.submit((1, a_job()))
    served = []
    for _ in range(4):
        stage.cycle()
        (running,) = [order for order in (old, later, sooner, young) if stage.live(order)]
        served.append(running)
        stage.end(*stage.live(running))
    assert served == [sooner, later, old, young]


@pytest.mark.parametrize(
    ("quota", "cpu", "placed"),
    [
        (Quota(live_tasks=3), 1, 3),
        (Quota(quantities={"cpu": 3}), 1, 3),
        (Quota(quantities={"cpu": 3}), 2, 1),
        (Quota(quantities={"cpu": 3}), 0, 5),
        (Quota(live_tasks=4, quantities={"cpu": 2}), 1, 2),
        (Quota(orders=1), 1, 5),
    ],
)
def test_an_owner_has_no_more_than_its_quota_and_the_others_go_on(quota: Quota, cpu: float, placed: int) -> None:
    stage = Stage(quotas={"ann": quota})
    stage.target("t1", cpu=100)
    ann = stage.submit((5, a_job(requests={"cpu": cpu})), owner="ann", priority=90)
    bob = stage.submit((5, a_job()), owner="bob")
    refused = stage.cycle().refused
    assert stage.where(ann).total() == placed
    assert stage.where(bob).total() == 5
    assert refused == ({"OwnerQuota": 5 - placed} if placed < 5 else {})


def test_what_ends_makes_room_in_a_quota() -> None:
    stage = Stage(quotas={"*": Quota(live_tasks=2)})
    stage.target("t1", cpu=100)
    order = stage.submit((4, a_job()))
    stage.cycle()
    stage.end(stage.live(order)[0])
    assert stage.cycle().placed() == 1


def test_lower_work_uses_room_that_higher_work_cannot_use_now() -> None:
    stage = Stage()
    stage.target("t1")
    stage.target("t2")
    nowhere = stage.submit((1, a_job(requests={"cpu": 99})), priority=90)
    elsewhere = stage.submit((6, a_job()), priority=90, target_policy="strict:t2")
    low = stage.submit((8, a_job()), priority=10)
    stage.cycle()
    assert not stage.where(nowhere)
    assert stage.where(elsewhere) == {"t2": 4}
    # One target of the two is kept for those that wait for room on it, and that one is full.
    assert stage.where(low) == {"t1": 4}


def test_a_rule_limits_how_many_run_at_a_time_over_all_targets() -> None:
    stage = Stage()
    for name in ("t1", "t2", "t3"):
        stage.target(name)
    stage.rule("licences", "job.labels.tool == 'cad'", limit=4)
    cad = stage.submit((3, a_job(labels={"tool": "cad"})))
    more = stage.submit((3, a_job(labels={"tool": "cad"}, requests={"cpu": 0.5})))
    other = stage.submit((2, a_job()))
    assert stage.cycle().refused == {"RuleLimit": 2}
    assert (stage.where(cad).total(), stage.where(more).total(), stage.where(other).total()) == (3, 1, 2)
    assert stage.cycle().placed() == 0
    stage.end(*stage.live(cad)[:1])
    assert stage.cycle().placed() == 1


def test_a_limit_on_some_targets_leaves_the_others_open() -> None:
    stage = Stage()
    stage.target("t1", labels={"old": "yes"})
    stage.target("t2")
    stage.rule("spare-the-old", "target.labels.old == 'yes'", limit=1)
    order = stage.submit((6, a_job()))
    assert stage.cycle().refused == {"RuleLimit": 1}
    assert stage.where(order) == {"t1": 1, "t2": 4}


def test_a_rule_raises_and_lowers_priority_within_its_bounds() -> None:
    stage = Stage()
    stage.target("t1", cpu=2)
    stage.rule("film-first", "job.labels.team == 'film'", priority=45)
    stage.rule("tests-last", "job.labels.team == 'test'", priority=-99)
    plain, tests = stage.submit((2, a_job()), priority=90), stage.submit((2, a_job(labels={"team": "test"})))
    film = stage.submit((1, a_job(labels={"team": "film"})), priority=50)
    stage.cycle()
    assert (stage.where(film).total(), stage.where(plain).total()) == (1, 1)
    stage.end(*stage.live(film), *stage.live(plain))
    lowest = stage.submit((2, a_job()), priority=2)
    stage.cycle()
    assert (stage.where(plain).total(), stage.where(lowest).total(), stage.where(tests).total()) == (1, 1, 0)


def test_what_the_budget_leaves_goes_into_the_next_cycle() -> None:
    stage = Stage(cycle_budget=3)
    stage.target("t1", cpu=100)
    order = stage.submit((7, a_job()))
    assert [stage.cycle().placed() for _ in range(4)] == [3, 3, 1, 0]
    assert stage.where(order) == {"t1": 7}


def test_what_would_not_make_its_deadline_is_not_begun() -> None:
    stage = Stage()
    stage.target("t1")
    order = stage.submit((1, a_job("short", time_limit=30)), (1, a_job("long", time_limit=90)), deadline=60)
    stage.cycle()
    assert (stage.where(order, "short").total(), stage.where(order, "long").total()) == (1, 0)
    late = stage.submit((2, a_job(time_limit=60)), deadline=60)
    stage.pass_seconds(0.001)
    stage.cycle()
    assert not stage.where(late)
