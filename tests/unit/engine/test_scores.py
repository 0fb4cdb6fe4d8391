"""Which of the targets that take a task gets it."""

from __future__ import annotations

from datetime import timedelta

from controlplane.model.job import Constraint, Constraints
from controlplane.model.settings import Weights
from tests.engine_stage import Stage, a_job, label


def prefers(name: str, op: str, *values: str, weight: float | None = None) -> Constraint:
    return Constraint(label=name, op=op, values=values, weight=weight)


def test_a_tier_is_left_for_the_next_only_when_it_is_full() -> None:
    stage = Stage()
    for name in ("far", "near-1", "near-2", "other"):
        stage.target(name)
    job = a_job(prefer=(("near-1", "near-2"), ("far",)))
    order = stage.submit((7, job))
    stage.cycle()
    assert stage.where(order) == {"near-1": 4, "near-2": 3}
    more = stage.submit((3, job))
    stage.cycle()
    assert stage.where(more) == {"near-2": 1, "far": 2}
    last = stage.submit((5, job))
    stage.cycle()
    assert stage.where(last) == {"far": 2, "other": 3}


def test_a_target_of_a_tier_that_is_busier_still_goes_first() -> None:
    stage = Stage()
    stage.target("near")
    stage.target("far")
    stage.submit((3, a_job()), target_policy="strict:near")
    stage.cycle()
    order = stage.submit((1, a_job(prefer=(("near",),))))
    stage.cycle()
    assert stage.where(order) == {"near": 1}


def test_a_soft_constraint_draws_tasks_but_does_not_hold_them_back() -> None:
    stage = Stage()
    stage.target("disk")
    stage.target("ssd", labels={"disk": "ssd"})
    job = a_job(constraints=Constraints(soft=(prefers("disk", "In", "ssd"),)))
    drawn = stage.submit((6, job))
    stage.cycle()
    assert stage.where(drawn) == {"ssd": 4, "disk": 2}


def test_of_soft_constraints_that_pull_apart_the_heavier_wins() -> None:
    stage = Stage()
    stage.target("a", labels={"zone": "a"})
    stage.target("b", labels={"zone": "b"})
    pulls = (prefers("zone", "In", "a", weight=20), prefers("zone", "In", "b", weight=30))
    order = stage.submit((1, a_job(constraints=Constraints(soft=pulls))))
    stage.cycle()
    assert stage.where(order) == {"b": 1}


def test_a_task_goes_away_from_neighbours_that_hurt_it() -> None:
    stage = Stage()
    stage.target("loud")
    stage.target("quiet")
    stage.submit((1, a_job(class_="video")), target_policy="strict:loud")
    stage.submit((2, a_job()), target_policy="strict:quiet")
    stage.cycle()
    hurt, indifferent = stage.submit((1, a_job(hurt_by=("video",)))), stage.submit((1, a_job(hurt_by=("render",))))
    stage.cycle()
    assert stage.where(hurt) == {"quiet": 1}
    assert stage.where(indifferent) == {"loud": 1}


def test_a_target_where_attempts_failed_of_late_is_taken_last_until_that_is_forgotten() -> None:
    stage = Stage(failure_memory=600)
    stage.target("bad")
    stage.target("good")
    unlucky = stage.submit((1, a_job()), target_policy="strict:bad")
    stage.cycle()
    stage.end(*stage.live(unlucky), phase="Failed", decision="fail")
    careful = stage.submit((1, a_job()))
    stage.cycle()
    assert stage.where(careful) == {"good": 1}
    stage.now += timedelta(seconds=601)
    forgetful = stage.submit((1, a_job()))
    stage.cycle()
    assert stage.where(forgetful) == {"bad": 1}


def test_balance_takes_the_emptiest_target_and_pack_the_fullest_that_fits() -> None:
    placed = {}
    for placement in ("balance", "pack"):
        stage = Stage(placement=placement)
        for name, used in (("full", 4), ("busy", 2), ("idle", 1)):
            stage.target(name)
            stage.submit((used, a_job()), target_policy=f"strict:{name}")
        stage.cycle()
        order = stage.submit((4, a_job()))
        stage.cycle()
        placed[placement] = dict(stage.where(order))
    assert placed == {"balance": {"idle": 2, "busy": 2}, "pack": {"busy": 2, "idle": 2}}


def test_pack_fills_one_target_before_the_next_and_balance_lays_evenly() -> None:
    placed = {}
    for placement in ("balance", "pack"):
        stage = Stage(placement=placement)
        for name in ("t1", "t2", "t3"):
            stage.target(name)
        order = stage.submit((6, a_job()))
        stage.cycle()
        placed[placement] = dict(stage.where(order))
    assert placed == {"balance": {"t1": 2, "t2": 2, "t3": 2}, "pack": {"t1": 4, "t2": 2}}


def test_a_rule_that_prefers_draws_and_one_that_prefers_less_than_nothing_drives_away() -> None:
    stage = Stage()
    stage.target("t1")
    stage.target("t2", labels={"kind": "liked"})
    stage.target("t3", labels={"kind": "disliked"})
    stage.rule("likes", "target.labels.kind == 'liked'", prefer=50)
    stage.rule("dislikes", "target.labels.kind == 'disliked'", prefer=-50)
    went: list[str] = []
    for _ in range(12):
        order = stage.submit((1, a_job()))
        stage.cycle()
        went.extend(stage.where(order))
    assert went == ["t2"] * 4 + ["t1"] * 4 + ["t3"] * 4


def test_a_weight_of_nothing_takes_a_score_out() -> None:
    stage = Stage(weights=Weights(soft=0, room=10))
    stage.target("disk")
    stage.target("ssd", labels={"disk": "ssd"})
    stage.submit((1, a_job()), target_policy="strict:ssd")
    stage.cycle()
    order = stage.submit((1, a_job(constraints=Constraints(soft=(label("disk", "In", "ssd"),)))))
    stage.cycle()
    assert stage.where(order) == {"disk": 1}
