"""When a cycle is due by time alone: windows are worked out once, and beside the loop where they are many."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from controlplane.engine.world import World
from controlplane.model import times
from controlplane.model.isolation import Casualties
from controlplane.model.target import Window
from controlplane.scheduler import moments
from controlplane.scheduler.moments import Moments
from controlplane.survey.backlog import Backlog
from tests.builders import A_MOMENT, a_row, a_world
from tests.picture import Told


def a_window(number: int) -> tuple[Window, ...]:
    return (Window(from_="18:00", to=f"19:{number:02}"),)


def with_windows(*windows: tuple[Window, ...]) -> World:
    rows = [replace(a_row(f"t{number}", cpu=1), windows=each) for number, each in enumerate(windows)]
    return replace(a_world(*rows), now=A_MOMENT)


async def test_the_next_opening_is_kept_until_it_has_passed() -> None:
    found = Moments(Casualties(), lambda: None)
    backlog, world = Backlog(Told().ledgers), with_windows(a_window(0))
    opens = A_MOMENT + timedelta(hours=6)
    assert found.next(world, backlog) == times.show(opens)
    kept = dict(found._changes)
    later = replace(world, now=opens - timedelta(seconds=1))
    assert found.next(later, backlog) == times.show(opens)
    assert found._changes == kept
    assert found.next(replace(world, now=opens), backlog) == times.show(opens + timedelta(hours=1))


async def test_many_windows_are_worked_out_beside_the_loop_and_the_cycle_hears_of_it() -> None:
    woken = asyncio.Event()
    found = Moments(Casualties(), woken.set)
    backlog, world = Backlog(Told().ledgers), with_windows(*(a_window(number) for number in range(30)))
    assert found.next(world, backlog) is None
    await woken.wait()
    assert found.next(world, backlog) == times.show(A_MOMENT + timedelta(hours=6))
    found.close()


async def test_targets_that_are_gone_leave_nothing_behind() -> None:
    found = Moments(Casualties(), lambda: None)
    backlog = Backlog(Told().ledgers)
    for number in range(20):
        found.next(with_windows(a_window(number)), backlog)
    assert len(found._changes) == 1


async def test_windows_that_cannot_be_worked_out_concern_their_target_only() -> None:
    ward = Casualties()
    found = Moments(ward, lambda: None)
    bad = (Window(from_="18:00", to="19:00", tz=7),)  # type: ignore[arg-type]
    backlog, world = Backlog(Told().ledgers), with_windows(bad, a_window(0))
    assert isinstance(moments.next_change(bad, A_MOMENT), Exception)
    assert found.next(world, backlog) == times.show(A_MOMENT + timedelta(hours=6))
    assert list(ward.errors) == [("Target", "t0")]
