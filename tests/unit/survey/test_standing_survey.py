"""A survey that follows the ledgers in slices equals a look at all of them, whoever led meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from msgspec.structs import replace

from controlplane.model import times
from controlplane.model.isolation import Casualties
from controlplane.model.order import Order
from controlplane.store import keys
from controlplane.survey import standing_survey as surveying
from controlplane.survey.backlog import Backlog
from controlplane.survey.standing_survey import Survey
from tests.builders import A_MOMENT, a_fulfilment, an_order
from tests.clock import ManualClock
from tests.picture import Told
from tests.unit.survey.test_backlog import NO_RULES, lines

# Enough for a few slices.
MANY = 3 * surveying._SLICE + 7


def submit(told: Told, count: int) -> list[Order]:
    orders = [an_order().jobs(cpu=1).build() for _ in range(count)]
    told.write({keys.order(order.id): order for order in orders})
    return orders


def looked_at_anew(told: Told, clock: ManualClock) -> Backlog:
    backlog = Backlog(told.ledgers)
    backlog.update(told.ledgers.orders, clock.wall(), NO_RULES)
    return backlog


def decided_on(survey: Survey, clock: ManualClock) -> Backlog:
    """The backlog as a cycle takes it."""
    survey.backlog.update(survey.take(), clock.wall(), survey.builder.book(survey._ledgers.cache.snapshot))
    return survey.backlog


@asynccontextmanager
async def followed(survey: Survey) -> AsyncIterator[None]:
    following = asyncio.create_task(survey.follow())
    try:
        yield
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def let_pass(clock: ManualClock, seconds: float) -> None:
    """In small steps, so that who sleeps in between goes on in between."""
    for _ in range(round(seconds / 0.01)):
        clock.pass_seconds(0.01)
        for _ in range(3):
            await asyncio.sleep(0)


async def test_a_replica_that_stands_by_has_looked_at_all_that_waits() -> None:
    told, clock = Told(), ManualClock(A_MOMENT)
    survey = Survey(told.ledgers, clock)
    submit(told, MANY)
    async with followed(survey):
        await let_pass(clock, 1.0)
    assert survey.behind == 0
    assert lines(survey.backlog) == lines(looked_at_anew(told, clock))


async def test_a_slice_leaves_the_loop_to_others_before_the_next_one() -> None:
    told, clock = Told(), ManualClock(A_MOMENT)
    survey = Survey(told.ledgers, clock)
    submit(told, MANY)
    async with followed(survey):
        await asyncio.sleep(0)
        assert survey.behind == MANY - surveying._SLICE


@pytest.mark.parametrize("slices", [0, 1, 3, 10])
async def test_a_leader_decides_on_all_that_waits_however_far_the_survey_had_come(slices: int) -> None:
    told, clock = Told(), ManualClock(A_MOMENT)
    survey = Survey(told.ledgers, clock)
    orders = submit(told, MANY)
    async with followed(survey):
        await let_pass(clock, slices * surveying._PAUSE_SECONDS)
        placing = a_fulfilment(orders[0].id).task(0)
        told.write({keys.desired("t1", placing.identity): placing.build(), keys.order(orders[5].id): None})
        survey.begin(Casualties())
        assert lines(decided_on(survey, clock)) == lines(looked_at_anew(told, clock))


async def test_in_a_term_only_its_scheduler_changes_the_backlog() -> None:
    told, clock = Told(), ManualClock(A_MOMENT)
    survey = Survey(told.ledgers, clock)
    async with followed(survey):
        survey.begin(Casualties())
        orders = submit(told, 3)
        await let_pass(clock, 1.0)
        assert lines(survey.backlog) == set()
        assert survey.take() == {order.id for order in orders}
        survey.end()


async def test_a_leader_that_catches_up_lets_others_have_the_loop() -> None:
    told, clock = Told(), ManualClock(A_MOMENT)
    survey = Survey(told.ledgers, clock)
    submit(told, surveying._REST + MANY)
    survey.begin(Casualties())
    catching_up = asyncio.create_task(survey.catch_up(clock.wall(), NO_RULES))
    await asyncio.sleep(0)
    assert survey.behind == surveying._REST + MANY - surveying._SLICE
    await catching_up
    assert 0 < survey.behind <= surveying._REST
    assert lines(decided_on(survey, clock)) == lines(looked_at_anew(told, clock))


async def test_what_one_term_left_out_waits_in_the_next() -> None:
    told, clock = Told(), ManualClock(A_MOMENT)
    survey = Survey(told.ledgers, clock)
    orders = submit(told, 3)
    survey.begin(Casualties(orders=(orders[1].id,)))
    decided_on(survey, clock).leave_out([orders[2].id])
    assert lines(survey.backlog) != lines(looked_at_anew(told, clock))
    survey.end()
    survey.begin(Casualties())
    assert lines(decided_on(survey, clock)) == lines(looked_at_anew(told, clock))


async def test_what_raises_while_the_replica_stands_by_is_reported_to_the_next_term() -> None:
    told, clock, ward = Told(), ManualClock(A_MOMENT), Casualties()
    survey = Survey(told.ledgers, clock)
    bad, good = submit(told, 2)
    told.ledgers.orders[bad.id].order = replace(bad, not_before="z")
    async with followed(survey):
        await let_pass(clock, 1.0)
        survey.begin(ward)
        (queue,) = decided_on(survey, clock).queues()
    assert list(ward.errors) == [("Order", bad.id)]
    assert [group.order for group in queue.groups] == [good.id]


async def test_begun_anew_it_holds_the_same() -> None:
    told, clock = Told(), ManualClock(A_MOMENT)
    survey = Survey(told.ledgers, clock)
    submit(told, 3)
    decided_on(survey, clock)
    survey.renew()
    assert lines(decided_on(survey, clock)) == lines(looked_at_anew(told, clock))


@pytest.mark.parametrize("seconds", [-3600, 0, 29, 31, 3600])
async def test_time_that_passes_or_is_set_back_changes_what_waits_like_a_new_look(seconds: int) -> None:
    told, clock = Told(), ManualClock(A_MOMENT)
    survey = Survey(told.ledgers, clock)
    later, late, *_ = submit(told, 3)
    soon = times.show(A_MOMENT + timedelta(seconds=30))
    created = times.show(A_MOMENT)
    told.write(
        {
            keys.order(later.id): replace(later, not_before=soon),
            keys.order(late.id): replace(late, created=created, deadline=30),
        }
    )
    before = replace(later, id=an_order().build().id, not_before=times.show(A_MOMENT - timedelta(seconds=60)))
    told.write({keys.order(before.id): before})
    decided_on(survey, clock)
    clock.pass_seconds(seconds)
    assert lines(decided_on(survey, clock)) == lines(looked_at_anew(told, clock))
