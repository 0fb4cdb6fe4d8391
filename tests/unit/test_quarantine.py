"""The quarantine: failures of one key, counted, told, and tried again later and later."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.model.errors import Deposed
from controlplane.model.event import Happening
from controlplane.quarantine import BACK_OFF_SECONDS, LEAST_SECONDS, Quarantine
from tests.clock import ManualClock

KEY = ("orders", "Order", "o1")


def test_each_failure_in_a_row_makes_the_key_wait_longer() -> None:
    quarantine = Quarantine(ManualClock())
    waits = [quarantine.failed(*KEY, ValueError("no")) for _ in range(7)]
    assert waits == [*BACK_OFF_SECONDS, BACK_OFF_SECONDS[-1], BACK_OFF_SECONDS[-1]]
    assert (quarantine.total, quarantine.failures) == (1, 7)


def test_a_failed_key_is_held_until_its_time_has_come() -> None:
    clock = ManualClock()
    quarantine = Quarantine(clock)
    seconds = quarantine.failed(*KEY, ValueError("no"))
    assert quarantine.holds(*KEY)
    assert not quarantine.holds("orders", "Order", "o2")
    assert not quarantine.holds("scheduler", "Order", "o1")
    clock.pass_seconds(seconds)
    assert not quarantine.holds(*KEY)


def test_a_key_that_changes_is_tried_earlier_but_never_at_once() -> None:
    clock = ManualClock()
    quarantine = Quarantine(clock)
    for _ in range(5):
        quarantine.failed(*KEY, ValueError("no"))
    quarantine.hurry(*KEY)
    assert quarantine.holds(*KEY)
    assert quarantine.left_seconds(*KEY) == LEAST_SECONDS
    clock.pass_seconds(LEAST_SECONDS)
    assert not quarantine.holds(*KEY)
    assert quarantine.left_seconds(*KEY) == 0


def test_a_key_that_was_handled_again_is_isolated_no_more_and_its_failures_count_on() -> None:
    told: list[Happening] = []
    quarantine = Quarantine(ManualClock(), told.append)
    quarantine.failed(*KEY, ValueError("no"))
    quarantine.passed(*KEY)
    assert quarantine.total == 0
    assert quarantine.isolated(10) == ()
    assert not quarantine.holds(*KEY)
    assert quarantine.failed(*KEY, ValueError("no")) == BACK_OFF_SECONDS[1]
    assert [(happening.about.name, happening.reason) for happening in told] == [
        ("o1", "HandlingFailed"),
        ("o1", "HandledAgain"),
        ("o1", "HandlingFailed"),
    ]


def test_what_is_isolated_says_whose_error_it_is_and_when_it_is_tried_again() -> None:
    quarantine = Quarantine(ManualClock())
    quarantine.failed(*KEY, OverflowError("date value out of range"))
    (isolated,) = quarantine.isolated(10)
    assert (isolated.about.kind, isolated.about.name, isolated.part) == ("Order", "o1", "orders")
    assert isolated.error == "OverflowError: date value out of range"
    assert (isolated.since, isolated.again) == ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.000Z")


async def test_supervised_work_is_begun_again_after_a_failure() -> None:
    clock, began = ManualClock(), asyncio.Queue[int]()
    quarantine = Quarantine(clock)

    async def work() -> None:
        began.put_nowait(began.qsize())
        raise ValueError("no")

    task = asyncio.create_task(quarantine.supervise("keeping", "Cluster", "events", work))
    await began.get()
    while quarantine.total == 0:
        await asyncio.sleep(0)
    clock.pass_seconds(BACK_OFF_SECONDS[0])
    await began.get()
    assert not task.done()
    task.cancel()


@pytest.mark.parametrize("error", [Deposed("over"), ExceptionGroup("", [Deposed("over"), ValueError("no")])])
async def test_being_deposed_is_no_failure_of_a_key(error: Exception) -> None:
    quarantine = Quarantine(ManualClock())

    async def work() -> None:
        raise error

    with pytest.raises(type(error)):
        await quarantine.supervise("keeping", "Cluster", "events", work)
    assert quarantine.failures == 0
