"""The reference chooser itself, on examples that a person can work out, since the engine is compared with it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from controlplane.model.job import Constraint
from controlplane.model.settings import Settings, Weights
from tests.chooser import Chooser
from tests.engine_stage import a_job
from tests.reference import Group, State
from tests.reference_places import Kept, Place, Running

TEAM = Constraint(label="team", op="In", values=("x",))
PART = Constraint(label="part", op="Exists")


def a_place(name: str, *running: Running, slots: int | None = None, **capacity: float) -> Place:
    return Place(name, "", "process", {}, capacity, slots=slots, running=list(running))


def running(cpu: float, ends_in: float | None = None, **said: Any) -> Running:
    return Running(a_job("old", requests={"cpu": cpu}, **said), "old", ends_in)


def waiting(
    count: int, *, order: str = "o1", owner: str = "ann", gang: bool = False, at: int = 0, **said: Any
) -> Group:
    return Group(50, owner, ("~", f"{at:03d}", order, at), a_job(f"j{at}", **said), count, gang=gang)


def chosen(places: list[Place], *groups: Group, **said: Any) -> tuple[Counter[tuple[str, str]], Chooser]:
    chooser = Chooser(State(places, (), Settings(**said), set(), {}), list(groups))
    chooser.choose()
    return Counter((order, target) for order, _, target in chooser.state.placed), chooser


def kept(chooser: Chooser) -> dict[str, Kept]:
    return {place.name: place.kept for place in chooser.state.places if place.kept is not None}


def on(count: Counter[tuple[str, str]], order: str = "o1") -> dict[str, int]:
    return {target: some for (whose, target), some in count.items() if whose == order}


def test_nine_tasks_on_eight_equal_empty_places_leave_none_empty() -> None:
    placed, _ = chosen([a_place(f"t{at}", cpu=4) for at in range(8)], waiting(9))
    assert on(placed) == {"t0": 2} | {f"t{at}": 1 for at in range(1, 8)}


def test_unequal_places_are_filled_in_proportion() -> None:
    placed, _ = chosen([a_place("small", cpu=10), a_place("large", cpu=20)], waiting(15))
    assert on(placed) == {"small": 5, "large": 10}


def test_pack_takes_the_place_that_is_the_fullest_afterwards() -> None:
    places = [a_place("wide", cpu=16), a_place("tight", running(5), cpu=8), a_place("tighter", running(13), cpu=16)]
    placed, _ = chosen(places, waiting(4), placement="pack")
    assert on(placed) == {"tighter": 3, "tight": 1}


def test_where_the_scarcest_quantity_is_equal_that_decides_which_the_task_asks_for() -> None:
    full = Running(a_job("old", requests={"memory": 3}), "old")
    busy = Running(a_job("old", requests={"memory": 3, "cpu": 2}), "old")
    placed, _ = chosen([a_place("t0", busy, cpu=4, memory=4), a_place("t1", full, cpu=4, memory=4)], waiting(1))
    assert on(placed) == {"t1": 1}


def test_tasks_that_ask_for_nothing_are_spread_evenly() -> None:
    placed, _ = chosen([a_place(f"t{at}", cpu=4) for at in range(3)], waiting(7, requests={}))
    assert on(placed) == {"t0": 3, "t1": 3, "t2": 1}


def test_without_weight_room_decides_between_equals_only() -> None:
    places = [a_place("t0", running(3), cpu=4), a_place("t1", cpu=4), a_place("t2", cpu=4)]
    places[2].failures = 1
    placed, _ = chosen(places, waiting(4), weights=Weights(room=0))
    assert on(placed) == {"t0": 1, "t1": 3}


def test_a_stranger_that_matches_one_term_does_not_keep_a_kind_from_beginning() -> None:
    stranger = running(1, labels={"team": "x"})
    own: dict[str, Any] = {"labels": {"team": "x", "part": "web"}, "affinity": (TEAM, PART)}
    placed, _ = chosen([a_place("t0", stranger, cpu=4), a_place("t1", cpu=4)], waiting(3, **own))
    assert on(placed) == {"t1": 3}


def test_who_comes_first_is_served_first_of_owners_with_equal_shares() -> None:
    groups = [waiting(1, order="young", owner="ann", at=1), waiting(1, order="old", owner="bob", at=0)]
    placed, _ = chosen([a_place("t0", cpu=1)], *groups)
    assert placed == {("old", "t0"): 1}


def test_room_is_kept_where_it_comes_first_and_what_is_to_spare_is_used() -> None:
    places = [a_place("t0", running(3, 50), cpu=4), a_place("t1", running(3, 20), running(1), cpu=4)]
    large = waiting(1, requests={"cpu": 3}, at=0)
    _, chooser = chosen(places, large)
    assert kept(chooser) == {"t1": Kept(20, {"cpu": 0}, None, [(large.job, "o1")])}


@pytest.mark.parametrize(
    ("said", "goes"),
    [
        ({"time_limit": 50}, True),
        ({"time_limit": 51}, True),
        ({"requests": {"cpu": 2}, "time_limit": 50}, True),
        ({"requests": {"cpu": 2}, "time_limit": 51}, False),
        ({"requests": {"cpu": 2}}, False),
        ({"requests": {"memory": 4}}, True),
        ({"anti_affinity": (TEAM,)}, False),
    ],
)
def test_who_is_over_in_time_or_takes_what_is_to_spare_goes_where_room_is_kept(
    said: dict[str, Any], goes: bool
) -> None:
    place = a_place("t0", running(2, 50), cpu=4, memory=4)
    large = waiting(1, requests={"cpu": 3}, labels={"team": "x"}, at=0)
    placed, chooser = chosen([place], large, waiting(1, order="o2", at=1, **said))
    assert on(placed, "o2") == ({"t0": 1} if goes else {})
    assert kept(chooser)["t0"].until == 50


def test_who_takes_what_is_to_spare_leaves_less_and_who_is_over_in_time_does_not() -> None:
    place = a_place("t0", running(4, 50), slots=4, cpu=8)
    large = waiting(1, requests={"cpu": 6}, at=0)
    groups = [waiting(1, order="o2", at=1), waiting(1, order="o3", at=2, time_limit=10), waiting(2, order="o4", at=3)]
    placed, chooser = chosen([place], large, *groups)
    assert [on(placed, order) for order in ("o2", "o3", "o4")] == [{"t0": 1}, {"t0": 1}, {"t0": 1}]
    assert (kept(chooser)["t0"].spare, kept(chooser)["t0"].slots) == ({"cpu": 0}, 1)


def test_nothing_is_kept_where_nobody_knows_when_room_comes() -> None:
    placed, chooser = chosen(
        [a_place("t0", running(2), cpu=4)], waiting(1, requests={"cpu": 3}), waiting(2, at=1, order="o2")
    )
    assert (on(placed, "o2"), kept(chooser)) == ({"t0": 2}, {})


def test_places_are_kept_for_as_many_tasks_as_wait_up_to_half_of_what_may_be_kept() -> None:
    places = [a_place(f"t{at}", running(4, 10.0 + at), cpu=4) for at in range(12)]
    _, chooser = chosen(places, waiting(9, requests={"cpu": 2}))
    assert (list(kept(chooser)), chooser.reservations) == (["t0", "t1"], 2)


@pytest.mark.parametrize("said", [{"exclusive": True}, {"anti_affinity": (TEAM,)}])
def test_room_is_kept_for_who_wants_to_be_alone(said: dict[str, Any]) -> None:
    team: dict[str, Any] = {"labels": {"team": "x"}}
    places = [
        a_place("t0", running(1, 30, **team), running(1, 60, **team), cpu=4),
        a_place("t1", running(1, **team), cpu=4),
    ]
    _, chooser = chosen(places, waiting(1, **said), waiting(8, order="o2", at=1))
    assert {name: one.until for name, one in kept(chooser).items()} == {"t0": 60}


def test_a_gang_has_the_places_kept_that_it_uses_at_the_first_moment_it_goes_in() -> None:
    places = [
        a_place("t0", running(4, 30), cpu=4),
        a_place("t1", running(3, 20), cpu=4),
        a_place("t2", running(4, 90), cpu=4),
    ]
    gang = waiting(2, requests={"cpu": 3}, gang=True)
    _, chooser = chosen(places, gang)
    whom = [(gang.job, "o1")]
    assert kept(chooser) == {"t0": Kept(30, {"cpu": 1}, None, whom), "t1": Kept(30, {"cpu": 1}, None, whom)}


def test_a_gang_on_a_place_that_is_kept_already_narrows_it() -> None:
    places = [a_place("t0", running(4, 30), running(3, 60), cpu=8, memory=4)]
    places += [a_place(f"small-{at}", cpu=0.5) for at in range(3)]
    first = waiting(1, requests={"cpu": 6}, at=0)
    gang = waiting(2, order="o2", requests={"cpu": 1, "memory": 1}, gang=True, at=1)
    placed, chooser = chosen(places, first, gang)
    assert not placed
    assert kept(chooser) == {"t0": Kept(30, {"cpu": 2, "memory": 2}, None, [(first.job, "o1"), (gang.job, "o2")])}


def test_a_gang_that_goes_where_room_is_kept_uses_what_is_to_spare() -> None:
    places = [a_place("t0", running(4, 30), cpu=8)]
    gang = waiting(2, order="o2", requests={"cpu": 1.5}, gang=True, at=1)
    placed, chooser = chosen(places, waiting(1, requests={"cpu": 5}), gang)
    assert (on(placed, "o2"), kept(chooser)["t0"].spare) == ({"t0": 2}, {"cpu": 0})
