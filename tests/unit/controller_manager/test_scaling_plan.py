"""What a scale policy does next, for everything that it may see."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from controlplane.controller_manager.scaling_plan import (
    GIVE_UP_SECONDS,
    Action,
    Grow,
    Keep,
    MadeTargetView,
    PolicyView,
    Resize,
    Shrink,
    next_seconds,
    plan,
    utilisation,
)
from controlplane.model.quantity import Number
from controlplane.model.scalepolicy import REMOVE, Made, MadePhase, ScalePolicy, TargetSize, TargetTemplate

POLICY = ScalePolicy(
    name="farm", provider="local", metric="queue", threshold=5, min=1, max=4, step=2, cool_down=10, idle=60,
    template=TargetTemplate(driver="process", capacity={"cpu": 2}),
)  # fmt: skip
SIZES = tuple(TargetSize(capacity={"cpu": cpu}) for cpu in (1, 2, 4))


def made(number: int, *, phase: str = MadePhase.UP, want: str = "run", cpu: Number = 2) -> Made:
    return Made(
        id=f"{number}", target=f"farm-{number}", policy="farm", provider="local", epoch=1, request="r", phase=phase,
        want=want, capacity={"cpu": cpu},
    )  # fmt: skip


def busy(number: int, *, used: Number = 2, **about: Any) -> MadeTargetView:
    return MadeTargetView(made(number, **about), busy=1, used={"cpu": used})


def idle(number: int, seconds: float = 1000.0, **about: Any) -> MadeTargetView:
    return MadeTargetView(made(number, **about), idle_seconds=seconds)


def done(*places: MadeTargetView, policy: ScalePolicy | None = POLICY, **sight: Any) -> list[str]:
    """The plan in short: what, and to whom."""
    return [_short(action) for action in plan(PolicyView(policy, places, **sight))]


def _short(action: Action) -> str:
    match action:
        case Grow():
            return f"grow {action.capacity['cpu']}"
        case Shrink() | Keep():
            return f"{type(action).__name__.lower()} {action.target}"
        case Resize():
            return f"resize {action.target} {action.capacity['cpu']}"


def test_there_are_at_least_so_many_whatever_waits_and_however_lately_it_scaled() -> None:
    assert done(acted_seconds=0) == ["grow 2"]
    assert done(policy=replace(POLICY, min=3), acted_seconds=0) == ["grow 2"] * 3
    assert done(idle(1, 0)) == []


@pytest.mark.parametrize(("waiting", "expected"), [(5, []), (6, ["grow 2", "grow 2"])])
def test_it_grows_by_its_step_when_more_than_the_threshold_waits(waiting: int, expected: list[str]) -> None:
    assert done(busy(1), waiting=waiting) == expected


def test_it_does_not_grow_beyond_its_most_nor_before_it_cooled_down() -> None:
    assert done(busy(1), busy(2), busy(3), waiting=9) == ["grow 2"]
    assert done(busy(1), busy(2), busy(3), busy(4), waiting=9) == []
    assert done(busy(1), waiting=9, acted_seconds=9.9) == []
    assert done(busy(1), waiting=9, acted_seconds=10) == ["grow 2"] * 2


def test_it_waits_for_what_is_on_its_way_and_not_for_what_is_lost() -> None:
    coming = MadeTargetView(made(2, phase=MadePhase.REQUESTED), live=False)
    lost = MadeTargetView(made(2), live=False)
    assert done(busy(1), coming, waiting=9) == []
    assert done(busy(1), lost, waiting=9) == ["grow 2"] * 2


def test_more_targets_do_not_help_where_one_stays_empty() -> None:
    assert done(busy(1), idle(2, 0), waiting=9) == []
    assert done(busy(1), idle(2), waiting=9) == []


def test_what_was_empty_for_the_idle_time_goes_the_newest_first_by_its_step_down_to_the_least() -> None:
    places = [idle(number) for number in (9, 10, 11)]
    assert done(*places) == ["shrink farm-11", "shrink farm-10"]
    assert done(*places, policy=replace(POLICY, min=2)) == ["shrink farm-11"]
    assert done(*places, policy=replace(POLICY, min=3)) == []
    assert done(idle(1), idle(2, 59.9)) == ["shrink farm-1"]
    assert done(*places, acted_seconds=5) == []
    assert done(busy(1), busy(2)) == []


def test_nothing_goes_while_too_much_waits() -> None:
    assert done(idle(1), idle(2), waiting=6) == []
    assert done(idle(1), idle(2), waiting=5) == ["shrink farm-2"]


def test_a_removal_that_can_be_taken_back_is_before_anything_is_made() -> None:
    leaving, gone = idle(2, want=REMOVE), idle(3, want=REMOVE, phase=MadePhase.REMOVING)
    assert done(busy(1), leaving, gone, waiting=9, acted_seconds=0) == ["keep farm-2"]
    assert done(busy(1), gone, waiting=9) == ["grow 2"] * 2
    assert done(leaving, gone) == ["keep farm-2"]
    assert done(busy(1), leaving) == []


def test_above_the_most_the_emptiest_go_and_of_equals_the_newest() -> None:
    places = [busy(1), idle(2, 0), busy(3)]
    assert done(*places, policy=replace(POLICY, max=1), acted_seconds=0) == ["shrink farm-2", "shrink farm-3"]


def test_without_its_policy_everything_goes() -> None:
    assert done(busy(1), idle(2, want=REMOVE), policy=None) == ["shrink farm-1"]


def test_what_a_user_deleted_and_what_never_came_is_given_up() -> None:
    assert done(MadeTargetView(made(1), known=False), busy(2)) == ["shrink farm-1"]
    coming = MadeTargetView(
        made(1, phase=MadePhase.REQUESTED), known=False, live=False, missing_seconds=GIVE_UP_SECONDS - 1
    )
    assert done(coming) == []
    never = MadeTargetView(made(1, phase=MadePhase.REQUESTED), known=False, live=False, missing_seconds=GIVE_UP_SECONDS)
    assert done(never) == ["shrink farm-1"]


@pytest.mark.parametrize(("seconds", "grows"), [(5.0, False), (5.1, True)])
def test_by_wait_it_grows_when_somebody_waited_too_long(seconds: float, grows: bool) -> None:
    by_wait = replace(POLICY, metric="wait")
    assert bool(done(busy(1), policy=by_wait, waiting=1, waited_seconds=seconds)) == grows
    assert done(busy(1), policy=by_wait, waiting=0, waited_seconds=seconds) == []


def test_by_utilisation_it_grows_before_anything_waits_and_shrinks_only_if_the_rest_will_do() -> None:
    by_use = replace(POLICY, metric="utilisation", threshold=70, min=0, step=1)
    assert utilisation([busy(1, used=1), busy(2, used=2)]) == 75
    assert done(busy(1, used=1), busy(2, used=2), policy=by_use) == ["grow 2"]
    assert done(busy(1, used=1), busy(2, used=1), policy=by_use) == []
    assert done(busy(1, used=2), idle(2), policy=by_use) == []
    assert done(busy(1, used=1), idle(2), policy=by_use) == ["shrink farm-2"]
    assert done(policy=by_use) == []
    assert done(policy=by_use, waiting=1) == ["grow 2"]


def test_sizes_come_after_numbers_and_go_before_them() -> None:
    sized = replace(POLICY, max=2, sizes=SIZES, template=TargetTemplate(driver="process"), step=1)
    assert done(busy(1, cpu=1, used=1), policy=sized, waiting=9) == ["grow 1"]
    full = [busy(1, cpu=1, used=1), busy(2, cpu=1, used=1)]
    assert done(*full, policy=sized, waiting=9) == ["resize farm-1 2"]
    assert done(busy(1, cpu=2), full[1], policy=sized, waiting=9) == ["resize farm-1 4"]
    assert done(busy(1, cpu=4), busy(2, cpu=4), policy=sized, waiting=9) == []
    resizing = busy(1, cpu=2, phase=MadePhase.RESIZING)
    assert done(resizing, full[1], policy=sized, waiting=9) == []


def test_a_target_gets_smaller_only_if_what_is_on_it_fits() -> None:
    sized = replace(POLICY, max=1, sizes=SIZES, template=TargetTemplate(driver="process"))
    large = MadeTargetView(made(1, cpu=4), busy=1, used={"cpu": 2}, spare_seconds=60)
    assert done(large, policy=sized) == ["resize farm-1 2"]
    assert done(replace_place(large, used={"cpu": 3}), policy=sized) == []
    assert done(replace_place(large, spare_seconds=59), policy=sized) == []
    assert done(MadeTargetView(made(1, cpu=1), spare_seconds=0), policy=sized) == []


def replace_place(place: MadeTargetView, **change: Any) -> MadeTargetView:
    known = {name: getattr(place, name) for name in MadeTargetView.__slots__}
    return MadeTargetView(**(known | change))


def test_it_says_when_time_alone_may_change_the_plan() -> None:
    assert next_seconds(PolicyView(POLICY, [busy(1)], acted_seconds=4)) == 6
    assert next_seconds(PolicyView(POLICY, [idle(1, 20)])) == 40
    assert next_seconds(PolicyView(POLICY, [busy(1)])) is None
    by_wait = replace(POLICY, metric="wait")
    soon = next_seconds(PolicyView(by_wait, [busy(1)], waiting=1, waited_seconds=2))
    assert soon == pytest.approx(3.001)
    assert next_seconds(PolicyView(None, [busy(1)])) is None
