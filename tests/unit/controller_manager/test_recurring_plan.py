"""Which runs of a recurring order are made: on time, after an outage, beside one that is under way; at its end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from controlplane.controller_manager import recurring
from controlplane.controller_manager.recurring import LATE_SECONDS, MOST_AT_ONCE, Step, begin, plan, run_of, status_of
from controlplane.model import schedule, times
from controlplane.model.errors import IllegalTransition
from controlplane.model.lifecycle import OrderPhase
from controlplane.model.order import WISHES, Counts, Move, Order, OrderStatus
from controlplane.model.schedule import Schedule
from tests.builders import NOW, an_order

START = times.parse(NOW, "now")
KEPT = 3600.0


def a_template(cron: str = "* * * * *", **said: Any) -> Order:
    return replace(an_order().build(), schedule=Schedule(cron=cron, **said))


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def step(
    order: Order, now: datetime, before: OrderStatus | None = None, *, under_way: bool = False, kept: float = KEPT
) -> tuple[Step, OrderStatus]:
    """What one leader does, and the status that it leaves behind."""
    found = plan(order, before, now, since=begin(order, before, now, kept), under_way=under_way)
    told = status_of(order, before, found, epoch=1, now=times.show(now))
    assert told is not None or before is not None
    return found, told or before  # type: ignore[return-value]


def seconds(found: Step) -> list[float]:
    return [(moment - START).total_seconds() for moment in found.runs]


def test_before_its_first_time_nothing_is_made_and_it_is_known_when_it_comes() -> None:
    found, told = step(a_template(), after(10))
    assert (found.runs, found.following, told.phase) == ((), after(60), "Running")
    assert told.next == times.show(after(60))


def test_each_time_is_made_once_whoever_leads_and_whenever_it_looks() -> None:
    order, before = a_template(), None
    made: list[float] = []
    for moment in (60.0, 60.2, 61.0, 119.9, 121.0, 185.0, 239.0, 241.0):
        found, before = step(order, after(moment), before)
        made += seconds(found)
    assert made == [60, 120, 180, 240]
    assert before is not None
    assert before.runs == 4


def test_a_leader_whose_clock_is_behind_makes_no_run_again() -> None:
    order = a_template()
    _, told = step(order, after(120.5))
    found, _ = step(order, after(65), told)
    assert (found.runs, found.following) == ((), after(180))


@pytest.mark.parametrize(
    ("missed", "made"),
    [("skip", []), ("last", [600]), ("all", [60.0 * at for at in range(1, 11)])],
)
def test_what_was_missed_is_made_as_the_schedule_says(missed: str, made: list[float]) -> None:
    order = a_template(missed=missed)
    _, told = step(order, after(1))
    found, told = step(order, after(600 + LATE_SECONDS + 1), told)
    assert seconds(found) == made
    assert told.scheduled == times.show(after(600)), "and is dealt with"
    assert step(order, after(659), told)[0].runs == ()


@pytest.mark.parametrize("missed", ["skip", "last"])
def test_what_a_change_of_leader_delayed_was_not_missed(missed: str) -> None:
    _, told = step(a_template(missed=missed), after(1))
    found, _ = step(a_template(missed=missed), after(600 + LATE_SECONDS - 1), told)
    assert seconds(found) == [600]


def test_never_thousands_at_once_and_none_that_is_older_than_orders_are_kept() -> None:
    order = a_template("* * * * * *", missed="all")
    _, told = step(order, after(0.5))
    found, told = step(order, after(3000), told)
    assert len(found.runs) == MOST_AT_ONCE
    assert seconds(found)[-1] == 3000
    found, _ = step(a_template(missed="all"), after(10_000), None, kept=600)
    assert min(seconds(found)) > 10_000 - 600


@pytest.mark.parametrize(("missed", "made"), [("skip", []), ("last", [120]), ("all", [60, 120])])
def test_what_a_pause_covered_was_missed_however_short(missed: str, made: list[float]) -> None:
    order = a_template(missed=missed)
    _, told = step(order, after(1))
    found, told = step(replace(order, paused=True), after(2), told)
    assert (found.runs, found.following, told.phase) == ((), None, "Paused")
    assert step(replace(order, paused=True), after(100), told)[0].runs == ()
    found, told = step(order, after(121), told)
    assert (seconds(found), told.phase) == (made, "Running")


@pytest.mark.parametrize(
    ("overlap", "under_way", "made"),
    [
        ("allow", True, [60, 61, 62]),
        ("skip", True, []),
        ("skip", False, [60]),
        ("replace", True, [62]),
    ],
)
def test_a_run_beside_an_earlier_one_is_made_as_the_schedule_says(
    overlap: str, under_way: bool, made: list[float]
) -> None:
    order = a_template("0-2 * * * * *", overlap=overlap)
    found, told = step(order, after(62.5), under_way=under_way)
    assert seconds(found) == made
    assert told.scheduled == times.show(after(62))


def test_a_bounded_one_is_over_after_its_last_run() -> None:
    order = a_template(limit=2)
    _, told = step(order, after(60))
    found, told = step(order, after(120), told)
    assert (seconds(found), found.following, told.phase) == ([120], None, "Running")
    found, told = step(order, after(130), told, under_way=True)
    assert (found.runs, told.phase) == ((), "Running")
    found, told = step(order, after(150), told)
    assert (found.runs, told.phase, told.finished) == ((), "Succeeded", times.show(after(150)))


def test_until_is_a_bound_too() -> None:
    order = a_template(until=times.show(after(60)))
    found, told = step(order, after(60))
    assert (seconds(found), found.following) == ([60], None)
    assert step(order, after(120), told)[1].phase == "Succeeded"


def test_a_cancelled_one_ends_and_makes_nothing() -> None:
    _, told = step(a_template(), after(1))
    found, told = step(replace(a_template(), cancel=True), after(120), told, under_way=True)
    assert (found.runs, told.phase) == ((), "Cancelled")


def test_it_begins_at_not_before_and_then_included() -> None:
    order = replace(a_template(), not_before=times.show(after(120)))
    assert step(order, after(60))[0].following == after(120)
    found, _ = step(order, after(121))
    assert seconds(found) == [120]
    run = run_of(order, after(120), epoch=7, now=NOW)
    assert run.not_before is None


def test_a_run_is_an_order_of_its_own_that_names_its_template() -> None:
    order = replace(a_template(), priority=80, labels={"a": "b"})
    run = run_of(order, after(60), epoch=7, now=NOW)
    assert run.id == schedule.run_identity(order.id, after(60))
    assert (run.template, run.scheduled, run.schedule, run.epoch) == (order.id, times.show(after(60)), None, 7)
    assert (run.priority, run.labels, run.resolved_digest) == (80, {"a": "b"}, order.resolved_digest)
    assert run.digest != order.digest


def test_a_run_begins_without_the_wishes_of_its_template() -> None:
    move = Move(job="a", index=0, attempt=1, to="elsewhere")
    run = run_of(replace(a_template(), moves=(move,), paused=True), after(60), epoch=7, now=NOW)
    assert (run.moves, run.paused) == ((), False)


def test_every_field_of_an_order_is_a_wish_or_is_meant_for_a_run() -> None:
    """A new field of an order has to be thought of here: is it a wish, which a run begins without?"""
    carried = {
        "packet", "priority", "owner", "creator", "labels", "target_policy", "deadline", "orchestration", "preempts",
        "failure_policies", "resources", "tasks_total", "resolved_digest", "resolved",
    }  # fmt: skip
    own = {"id", "created", "not_before", "digest", "schedule", "template", "scheduled", "epoch", "changed_by"}
    assert {*carried, *own, *WISHES} == set(Order.__struct_fields__)


def test_large_orders_are_made_a_few_at_a_time() -> None:
    assert recurring._at_once(a_template()) > 10
    large = replace(a_template(), resolved=type(a_template().resolved)(b" " * 250_000))
    assert recurring._at_once(large) == 1
    whole = Step(phase=step(a_template(), after(1))[0].phase, runs=(after(60), after(120)), through=after(180))
    assert recurring._first(whole, 1)[1:3] == ((after(60),), after(60))


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "9999-12-31T20:00:00.000Z"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_times_at_the_ends_of_the_calendar_raise_nothing(moment: str, zone: str) -> None:
    order = replace(a_template(tz=zone), not_before=moment, created=NOW)
    since = begin(order, None, START, 1e300)
    assert plan(order, None, START, since=since, under_way=False).phase in ("Running", "Succeeded")


def test_what_is_kept_for_ever_is_not_made_up_for_without_end() -> None:
    order = replace(a_template(missed="all"), created="0001-01-01T00:00:00.000Z")
    made = plan(order, None, START, since=begin(order, None, START, 1e300), under_way=False)
    assert len(made.runs) == MOST_AT_ONCE


def test_nothing_follows_the_final_phase_of_a_recurring_order() -> None:
    order = an_order().build()
    over = OrderStatus(order=order.id, epoch=1, phase="Succeeded", counts=Counts())
    with pytest.raises(IllegalTransition):
        status_of(order, over, Step(OrderPhase.RUNNING), epoch=1, now=times.show(START))
