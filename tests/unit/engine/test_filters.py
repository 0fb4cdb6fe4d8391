"""What keeps a task off a target, one filter at a time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from controlplane.model.job import Constraint, Constraints
from controlplane.model.target import Window
from tests.engine_stage import Stage, a_job, label

FILM = label("team", "In", "film")
film = a_job(labels={"team": "film"})


def test_a_task_goes_where_a_job_of_the_labels_that_it_wants_is() -> None:
    stage = Stage()
    stage.target("t1", labels={"zone": "a"})
    stage.target("t2", labels={"zone": "b"})
    stage.submit((1, a_job(labels={"team": "film"}, constraints=Constraints(hard=(label("zone", "In", "b"),)))))
    beside = stage.submit((2, a_job(affinity=(FILM,))))
    stage.cycle()
    stage.cycle()
    assert stage.where(beside) == {"t2": 2}


def test_without_company_a_task_waits_for_it() -> None:
    stage = Stage()
    stage.target("t1")
    beside = stage.submit((2, a_job(affinity=(FILM,))))
    assert stage.cycle().refused == {"Affinity": 2}
    assert not stage.where(beside)


def test_tasks_that_want_their_own_kind_around_all_go_where_the_first_went() -> None:
    stage = Stage()
    for name in ("t1", "t2", "t3"):
        stage.target(name)
    own = stage.submit((3, a_job(labels={"team": "film"}, affinity=(FILM,))))
    stage.cycle()
    assert sorted(stage.where(own).values()) == [3]
    more = stage.submit((2, a_job(labels={"team": "film"}, affinity=(FILM,))))
    assert stage.cycle().refused == {"InsufficientCapacity": 1}
    assert stage.where(more) == dict.fromkeys(stage.where(own), 1)


def test_a_stranger_who_is_half_of_the_company_does_not_keep_the_first_of_a_kind_waiting() -> None:
    stage = Stage()
    stage.target("t1")
    stage.target("t2")
    stage.submit((1, film), target_policy="strict:t1")
    stage.cycle()
    both = (FILM, label("scene", "In", "7"))
    own = stage.submit((3, a_job(labels={"team": "film", "scene": "7"}, affinity=both)))
    assert not stage.cycle().refused
    assert sorted(stage.where(own).values()) == [3]


def test_a_stranger_who_is_half_of_the_company_is_no_company_for_others() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((1, film))
    stage.cycle()
    stage.submit((1, a_job(labels={"team": "film"}, affinity=(FILM, label("scene", "In", "7")))))
    assert stage.cycle().refused == {"Affinity": 1}


def test_a_task_stays_away_from_jobs_that_it_wants_to_be_away_from() -> None:
    stage = Stage()
    stage.target("t1")
    stage.target("t2")
    stage.submit((1, film), target_policy="strict:t1")
    stage.cycle()
    away = stage.submit((2, a_job(anti_affinity=(FILM,))))
    stage.cycle()
    assert stage.where(away) == {"t2": 2}


def test_a_job_that_is_away_from_its_own_kind_has_one_task_a_target() -> None:
    stage = Stage()
    stage.target("t1")
    stage.target("t2")
    alone = stage.submit((3, a_job(labels={"team": "film"}, anti_affinity=(FILM,))))
    assert stage.cycle().refused == {"AntiAffinity": 1}
    assert stage.where(alone) == {"t1": 1, "t2": 1}


def test_what_runs_keeps_away_whom_it_wanted_to_be_away_from() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((1, a_job(anti_affinity=(FILM,))))
    stage.cycle()
    kept_off = stage.submit((1, film))
    assert stage.cycle().refused == {"AntiAffinity": 1}
    stage.target("t2")
    stage.cycle()
    assert stage.where(kept_off) == {"t2": 1}


def test_who_keeps_others_away_does_so_in_the_cycle_that_places_it_too() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((1, a_job(anti_affinity=(FILM,))), priority=60)
    stage.submit((1, film))
    assert stage.cycle().refused == {"AntiAffinity": 1}


def test_an_exclusive_task_has_no_neighbours_neither_before_nor_after() -> None:
    stage = Stage()
    stage.target("t1")
    stage.target("t2")
    stage.submit((1, a_job()), target_policy="strict:t1")
    stage.cycle()
    alone = stage.submit((2, a_job(exclusive=True)))
    assert stage.cycle().refused == {"Exclusive": 1}
    assert stage.where(alone) == {"t2": 1}
    other = stage.submit((4, a_job()), priority=90)
    assert stage.cycle().refused == {"InsufficientCapacity": 1, "Exclusive": 1}
    assert stage.where(other) == {"t1": 3}


def test_tasks_of_an_order_that_spreads_are_on_different_targets() -> None:
    stage = Stage()
    stage.target("t1")
    stage.target("t2")
    spread = stage.submit((3, a_job(spread="order")))
    other = stage.submit((2, a_job(spread="order")))
    assert stage.cycle().refused == {"Spread": 1}
    assert stage.where(spread) == stage.where(other) == {"t1": 1, "t2": 1}
    stage.target("t3")
    stage.cycle()
    assert stage.where(spread) == {"t1": 1, "t2": 1, "t3": 1}


def test_jobs_of_an_order_that_do_not_spread_do_not_keep_those_off_that_do() -> None:
    stage = Stage()
    stage.target("t1")
    mixed = stage.submit((2, a_job("plain")), (1, a_job("spread", spread="order")))
    stage.cycle()
    assert stage.where(mixed) == {"t1": 3}


@pytest.mark.parametrize(
    ("constraint", "keeping"),
    [
        (label("zone", "In", "a", "b"), {"a1", "b2"}),
        (label("zone", "NotIn", "a"), {"b2", "plain"}),
        (label("zone", "Exists"), {"a1", "b2"}),
        (label("zone", "DoesNotExist"), {"plain"}),
        (label("size", "Gt", "1"), {"b2"}),
        (label("size", "Lt", "2"), {"a1"}),
        (label("name", "In", "plain"), {"plain"}),
        (label("region", "In", "eu"), {"b2"}),
        (label("driver", "In", "simulated"), {"plain"}),
    ],
)
def test_a_hard_constraint_keeps_a_task_off_targets_that_do_not_meet_it(
    constraint: Constraint, keeping: set[str]
) -> None:
    stage = Stage()
    stage.target("a1", labels={"zone": "a", "size": "1"})
    stage.target("b2", labels={"zone": "b", "size": "2"}, region="eu")
    stage.target("plain", driver="simulated")
    order = stage.submit((20, a_job(constraints=Constraints(hard=(constraint,)))))
    stage.cycle()
    assert stage.where(order) == dict.fromkeys(keeping, 4)


def test_a_constraint_that_no_target_meets_is_the_reason() -> None:
    stage = Stage()
    stage.target("t1")
    stage.submit((1, a_job(constraints=Constraints(hard=(label("zone", "In", "a"),)))))
    assert stage.cycle().refused == {"ConstraintUnmet": 1}


def test_a_task_with_a_region_stays_in_it() -> None:
    stage = Stage()
    stage.target("t1", region="us")
    order = stage.submit((1, a_job(region="eu")))
    assert stage.cycle().refused == {"RegionMismatch": 1}
    stage.target("t2", region="eu")
    stage.cycle()
    assert stage.where(order) == {"t2": 1}


def test_a_label_named_region_does_not_move_a_target() -> None:
    stage = Stage()
    stage.target("t1", region="us", labels={"region": "eu"})
    stage.submit((1, a_job(region="eu")))
    assert stage.cycle().refused == {"RegionMismatch": 1}


def test_a_target_takes_work_only_while_a_window_is_open() -> None:
    stage = Stage()
    stage.target("t1", windows=(Window(days=("mon",), from_="13:00", to="14:00"),))
    order = stage.submit((2, a_job()))
    assert stage.cycle().refused == {"WindowClosed": 2}
    stage.now += timedelta(hours=1)
    stage.cycle()
    assert stage.where(order) == {"t1": 2}
    stage.now += timedelta(hours=1)
    stage.submit((1, a_job()))
    assert stage.cycle().refused == {"WindowClosed": 1}


def test_a_rule_that_forbids_and_one_that_requires_keep_tasks_off_targets() -> None:
    stage = Stage()
    stage.target("t1", labels={"gpu": "no"})
    stage.target("t2", labels={"gpu": "yes"})
    stage.target("t3", labels={"gpu": "yes"})
    stage.rule("film-on-gpu", "job.labels.team == 'film' && target.labels.gpu == 'yes'", require=True)
    stage.rule("not-on-three", "target.name == 't3'", forbid=True)
    filming = stage.submit((5, film))
    assert stage.cycle().refused == {"InsufficientCapacity": 1}
    assert stage.where(filming) == {"t2": 4}
    other = stage.submit((5, a_job()))
    stage.cycle()
    assert stage.where(other) == {"t1": 4}


def test_a_rule_about_the_time_holds_when_it_is_that_time() -> None:
    stage = Stage()
    stage.target("t1")
    stage.rule("not-at-noon", "job.labels.team == 'film' && now.hour == 12", forbid=True)
    order = stage.submit((1, film))
    assert stage.cycle().refused == {"RuleForbids": 1}
    stage.now += timedelta(hours=1)
    stage.cycle()
    assert stage.where(order) == {"t1": 1}


def test_a_unique_resource_is_held_by_one_task_after_the_other() -> None:
    stage = Stage()
    stage.target("t1")
    order = stage.submit((2, a_job(resources=("licence",))))
    assert stage.cycle().refused == {"ResourceHeld": 1}
    assert stage.cycle().placed() == 0
    stage.end(*stage.live(order))
    assert stage.cycle().placed() == 1
