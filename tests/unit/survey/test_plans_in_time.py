"""Plans keep their word: where time limits hold and nothing new arrives, nothing begins later than planned."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import pytest

from controlplane.model import times
from controlplane.model.explanation import Plan
from controlplane.model.job import Job
from controlplane.model.order import Order
from controlplane.model.target import Window
from controlplane.store import keys
from controlplane.survey.planning import plan
from tests.engine_stage import Stage, a_job, order_of
from tests.planned import SMALL, PlannedWorld

_ROUNDING_SECONDS = 0.1


@pytest.mark.parametrize("seed", range(10))
def test_nothing_begins_later_than_planned(seed: int) -> None:
    starts = list(PlannedWorld(seed, SMALL).starts())
    assert any(one.planned for one in starts), "nothing had to wait, so that the plan was easy"
    assert [one for one in starts if one.planned is None or one.late > _ROUNDING_SECONDS] == []
    assert median(abs(one.late) for one in starts) < 1


def stage_with(cpu: float) -> Stage:
    stage = Stage()
    stage.target("t1", cpu=cpu)
    return stage


def ordered(stage: Stage, *jobs: tuple[int, Job], after: Mapping[str, tuple[str, ...]], **said: Any) -> Order:
    return order_of(*jobs, after=after, created=times.show(stage.now), **said)


def planned(stage: Stage, order: Order) -> Plan:
    return plan(stage.told.ledgers, order, stage.now)


def starts_of(stage: Stage, order: Order) -> list[tuple[str, float]]:
    return [(one.job, float(one.start_in_seconds)) for one in planned(stage, order).placements]


def test_a_job_is_planned_for_when_the_jobs_before_it_are_over() -> None:
    stage = stage_with(4)
    jobs = (2, a_job("first", time_limit=10)), (1, a_job("second", time_limit=5)), (1, a_job("third", time_limit=5))
    order = ordered(stage, *jobs, after={"second": ("first",), "third": ("first", "second")})
    assert starts_of(stage, order) == [("first", 0), ("second", 10), ("third", 15)]
    assert planned(stage, order).placeable


def test_a_job_after_one_without_a_time_limit_is_planned_as_if_it_were_its_turn() -> None:
    stage = stage_with(4)
    jobs = (1, a_job("first")), (1, a_job("second", time_limit=5)), (1, a_job("third", time_limit=5))
    order = ordered(stage, *jobs, after={"second": ("first",), "third": ("second",)})
    assert starts_of(stage, order) == [("first", 0), ("second", 0), ("third", 0)]


def test_a_plan_knows_that_jobs_of_others_come_after_others() -> None:
    """The last job of an older order with a higher priority takes the target once the job before it is over."""
    stage = stage_with(1)
    jobs = (1, a_job("first", time_limit=10)), (1, a_job("second", time_limit=30))
    older = ordered(stage, *jobs, after={"second": ("first",)}, priority=90)
    stage.told.write({keys.order(older.id): older})
    stage.cycle()
    stage.pass_seconds(4)
    order = order_of((1, a_job(time_limit=5)), created=times.show(stage.now))
    assert starts_of(stage, order) == [("job", 36)]


def test_what_can_no_longer_make_its_deadline_is_in_nobodys_way() -> None:
    """The older one would take the target at 10 seconds, but has to begin within 5."""
    stage = stage_with(1)
    stage.submit((1, a_job(time_limit=10)))
    stage.cycle()
    stage.submit((1, a_job(time_limit=20)), priority=90, deadline=25)
    order = order_of((1, a_job(time_limit=5)), created=times.show(stage.now))
    assert starts_of(stage, order) == [("job", 10)]


def test_an_order_that_cannot_make_its_deadline_is_not_placeable() -> None:
    stage = stage_with(1)
    stage.submit((1, a_job(time_limit=10)))
    stage.cycle()
    late = order_of((1, a_job(time_limit=5)), created=times.show(stage.now), deadline=14)
    assert not planned(stage, late).placeable
    on_time = order_of((1, a_job(time_limit=5)), created=times.show(stage.now), deadline=15)
    assert starts_of(stage, on_time) == [("job", 10)]


def test_work_that_is_being_stopped_for_others_waits_again() -> None:
    """The one that preempts runs 20 seconds, then the one that was stopped runs its 30 seconds again."""
    stage = stage_with(1)
    stage.submit((1, a_job(time_limit=30, preemptible=True)), priority=50)
    stage.cycle()
    stage.submit((1, a_job(time_limit=20)), priority=90, preempts=True)
    stage.cycle()
    order = order_of((1, a_job(time_limit=5)), created=times.show(stage.now), priority=40)
    assert starts_of(stage, order) == [("job", 50)]


def test_moments_do_not_drift() -> None:
    """Nine tasks run one after the other, and the tenth begins when the ninth is over, to the millisecond."""
    stage = stage_with(1)
    for _ in range(9):
        stage.submit((1, a_job(time_limit=1)))
    order = order_of((1, a_job(time_limit=1)), created=times.show(stage.now))
    assert starts_of(stage, order) == [("job", 9)]


def test_a_plan_waits_for_a_window_to_open() -> None:
    stage = Stage()
    stage.target("t1", windows=(Window(days=("mon",), from_="12:01", to="18:00", tz="UTC"),))
    order = order_of((1, a_job(time_limit=1)), created=times.show(stage.now))
    assert starts_of(stage, order) == [("job", 60)]
