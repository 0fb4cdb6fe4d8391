"""The chooser against the promises, judged by code that shares nothing with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.engine.decide import decide
from controlplane.engine.decision import Decision, Placement
from controlplane.engine.signature import Signature
from controlplane.engine.world import TargetRow, World
from controlplane.model.settings import Settings
from tests.builders import a_row, a_signature, a_world
from tests.waiting import Waiting, queues

PLENTY = 1_000_000


def of(**said: Any) -> Settings:
    """Settings in which nobody's room is kept, so that whatever fits goes."""
    return Settings(reservations=0, **said)


ROWS = st.lists(
    st.builds(
        lambda slots, ready, driver, cpu, memory: (slots, ready, driver, cpu, memory),
        st.none() | st.integers(0, 4),
        st.sampled_from([True, True, True, False]),
        st.sampled_from(["process", "simulated"]),
        st.integers(0, 8),
        st.integers(0, 8),
    ),
    max_size=4,
).map(
    lambda rows: tuple(
        a_row(f"t{at}", slots=slots, ready=ready, driver=driver, cpu=cpu, memory=memory)
        for at, (slots, ready, driver, cpu, memory) in enumerate(rows)
    )
)
SIGNATURES = st.builds(
    lambda cpu, memory, policy, drivers, unique: a_signature(
        policy=policy, drivers=drivers, unique=tuple(sorted(unique)), cpu=cpu, memory=memory
    ),
    st.integers(0, 4),
    st.integers(0, 4),
    st.sampled_from(["any", "any", "strict:t0", "strict:t1", "strict:nowhere"]),
    st.sampled_from([(), (), ("process",)]),
    st.sets(st.sampled_from(["x", "y"])) | st.just(set()),
)


@st.composite
def backlogs(draw: st.DrawFn) -> list[Waiting]:
    pool = draw(st.lists(SIGNATURES, min_size=1, max_size=3))
    return [
        Waiting(priority, f"o{at:02d}", f"j{job}", draw(st.integers(1, 5)), draw(st.sampled_from(pool)), position=job)
        for at in range(draw(st.integers(0, 6)))
        for priority in (draw(st.integers(1, 3)),)
        for job in range(draw(st.integers(1, 2)))
    ]


BUDGETS = st.integers(0, 6) | st.just(PLENTY)
WORLDS = st.builds(
    lambda rows, held, budget: a_world(*rows, held=tuple(held), settings=of(cycle_budget=budget)),
    ROWS,
    st.sets(st.sampled_from(["x", "z"])),
    BUDGETS,
)


def with_budget(world: World, budget: int) -> World:
    return replace(world, settings=of(cycle_budget=budget))


def placed_on(row: TargetRow, placements: Iterable[Placement]) -> tuple[Counter[str], int]:
    """What placements take of a target: quantities and slots."""
    used: Counter[str] = Counter()
    slots = 0
    for placement in placements:
        if placement.target == row.name:
            slots += placement.count
            for name, amount in placement.signature.requests:
                used[name] += int(amount) * placement.count
    return used, slots


def takes(row: TargetRow, signature: Signature, others: list[Placement]) -> bool:
    """Whether the target takes one such task beside the others."""
    if not row.ready or signature.policy not in ("any", f"strict:{row.name}"):
        return False
    if signature.drivers and row.facts.driver not in signature.drivers:
        return False
    used, slots = placed_on(row, others)
    if row.slots is not None and slots >= row.slots:
        return False
    return all(not amount or used[name] + amount <= row.free.get(name, 0) for name, amount in signature.requests)


def placed_of(decision: Decision) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for placement in decision.placements:
        counts[placement.order, placement.job] += placement.count
    return counts


@settings(deadline=None)
@given(WORLDS, backlogs())
def test_no_target_ever_gets_more_than_it_has_and_takes(world: World, waiting: list[Waiting]) -> None:
    decision = decide(world, queues(waiting))
    for row in world.targets:
        used, slots = placed_on(row, decision.placements)
        assert all(used[name] <= row.free.get(name, 0) for name in used if used[name])
        assert row.slots is None or slots <= row.slots
        if slots:
            here = [placement for placement in decision.placements if placement.target == row.name]
            assert all(takes(row, placement.signature, []) for placement in here)


@settings(deadline=None)
@given(WORLDS, backlogs())
def test_nothing_that_goes_before_waits_for_room_that_another_got(world: World, waiting: list[Waiting]) -> None:
    decision = decide(world, queues(waiting))
    served = {(one.order, one.job): (-one.priority, one.rank) for one in waiting}
    counts = placed_of(decision)
    for one in waiting:
        if counts[one.order, one.job] == one.count:
            continue
        kept = [p for p in decision.placements if served[p.order, p.job] <= served[one.order, one.job]]
        if len(kept) == len(decision.placements):
            continue
        if any(name in world.held or any(name in p.signature.unique for p in kept) for name in one.signature.unique):
            continue
        assert not any(takes(row, one.signature, kept) for row in world.targets)


@settings(deadline=None)
@given(WORLDS, backlogs())
def test_with_budget_left_nothing_waits_that_still_fits(world: World, waiting: list[Waiting]) -> None:
    decision = decide(with_budget(world, PLENTY), queues(waiting))
    counts = placed_of(decision)
    held = {*world.held, *(name for p in decision.placements for name in p.signature.unique)}
    for one in waiting:
        if counts[one.order, one.job] < one.count and not held & set(one.signature.unique):
            assert not any(takes(row, one.signature, list(decision.placements)) for row in world.targets)


@settings(deadline=None)
@given(WORLDS, backlogs())
def test_a_unique_resource_is_given_out_once_and_only_while_it_is_free(world: World, waiting: list[Waiting]) -> None:
    given_out: Counter[str] = Counter()
    for placement in decide(world, queues(waiting)).placements:
        for name in placement.signature.unique:
            given_out[name] += placement.count
    assert all(count == 1 for count in given_out.values())
    assert not given_out.keys() & world.held.keys()


@settings(deadline=None)
@given(WORLDS, backlogs())
def test_every_task_is_placed_or_refused_with_a_reason_and_none_twice(world: World, waiting: list[Waiting]) -> None:
    decision = decide(world, queues(waiting))
    assert decision.considered == sum(one.count for one in waiting)
    assert decision.placed() + sum(decision.refused.values()) == decision.considered
    assert decision.placed() <= world.settings.cycle_budget
    assert all(reason and count > 0 for reason, count in decision.refused.items())
    counts = placed_of(decision)
    wanted = {(one.order, one.job): one.count for one in waiting}
    assert all(count <= wanted[key] for key, count in counts.items())


@settings(deadline=None)
@given(WORLDS, backlogs(), st.randoms(use_true_random=False))
def test_the_same_world_gives_the_same_decision_in_whatever_order_queues_come(
    world: World, waiting: list[Waiting], random: Random
) -> None:
    first = decide(world, queues(waiting))
    again = decide(world, queues(waiting))
    assert first.digest() == again.digest()
    shuffled = queues(waiting)
    random.shuffle(shuffled)
    assert decide(world, shuffled).digest() == first.digest()


@settings(deadline=None)
@given(ROWS, backlogs(), BUDGETS)
def test_of_tasks_of_one_size_each_group_gets_what_a_task_by_task_chooser_gives_it(
    rows: tuple[TargetRow, ...], waiting: list[Waiting], budget: int
) -> None:
    """Task by task: the first in line takes the target with the most room, until nothing fits or is left to spend."""
    same = [replace(one, signature=a_signature(cpu=2, memory=1)) for one in waiting]
    expected: Counter[tuple[str, str]] = Counter()
    placements: list[Placement] = []
    for one in sorted(same, key=lambda one: (-one.priority, one.order, one.job)):
        for _ in range(one.count):
            fitting = [row for row in rows if takes(row, one.signature, placements)]
            if fitting and len(placements) < budget:
                placements.append(Placement(one.order, one.job, fitting[0].name, 1, one.signature))
                expected[one.order, one.job] += 1
    assert placed_of(decide(a_world(*rows, settings=of(cycle_budget=budget)), queues(same))) == expected


@pytest.mark.parametrize(
    ("sizes", "tasks", "expected"),
    [
        ([8] * 8, 9, [2, 1, 1, 1, 1, 1, 1, 1]),
        ([10, 20], 15, [5, 10]),
        ([10, 20, 40], 35, [5, 10, 20]),
        ([1, 10, 10, 0.5], 7, [0, 4, 3, 0]),
        ([2, 100], 102, [2, 100]),
        ([4, 4], 20, [4, 4]),
        ([1000] * 3, 2000, [667, 667, 666]),
    ],
)
def test_a_group_fills_the_targets_that_take_it_evenly_in_parts_of_their_size(
    sizes: list[float], tasks: int, expected: list[int]
) -> None:
    world = a_world(*(a_row(f"t{at}", cpu=size) for at, size in enumerate(sizes)))
    decision = decide(world, queues([Waiting(50, "o", "j", tasks, a_signature(cpu=1))]))
    found = dict.fromkeys((f"t{at}" for at in range(len(sizes))), 0)
    for placement in decision.placements:
        found[placement.target] += placement.count
    assert list(found.values()) == expected


@pytest.mark.parametrize("tasks", [1, 2, 5, 17, 60, 400])
def test_many_tasks_at_once_go_where_they_would_go_one_by_one(tasks: int) -> None:
    sizes = [(4, 64), (7, 3), (16, 16), (16, 32), (100, 5), (3, 1000), (64, 64), (9, 2)]
    rows = [
        used(a_row(f"t{at}", cpu=cpu, memory=memory), cpu=at % 3, memory=at % 2)
        for at, (cpu, memory) in enumerate(sizes)
    ]
    at_once = decide(a_world(*rows), queues([Waiting(50, "o", "j", tasks, a_signature(cpu=0.5, memory=0.25))]))
    one_by_one = decide(
        a_world(*rows),
        queues([Waiting(50, f"o{at:03}", "j", 1, a_signature(cpu=0.5, memory=0.25)) for at in range(tasks)]),
    )
    assert per_target(at_once) == per_target(one_by_one)


def used(row: TargetRow, **amounts: float) -> TargetRow:
    return replace(row, free={name: free - amounts.get(name, 0) for name, free in row.free.items()})


def per_target(decision: Decision) -> Counter[str]:
    found: Counter[str] = Counter()
    for placement in decision.placements:
        found[placement.target] += placement.count
    return found


def test_to_pack_is_to_take_the_tightest_target_that_fits() -> None:
    rows = [used(a_row("loose", cpu=16), cpu=11), used(a_row("tight", cpu=4), cpu=2), used(a_row("full", cpu=4), cpu=4)]
    world = a_world(*rows, settings=of(placement="pack"))
    assert per_target(decide(world, queues([Waiting(50, "o", "j", 1, a_signature(cpu=2))]))) == {"tight": 1}
    assert per_target(decide(world, queues([Waiting(50, "o", "j", 1, a_signature(cpu=3))]))) == {"loose": 1}


def test_a_higher_priority_takes_the_last_room() -> None:
    waiting = [Waiting(10, "o1", "j", 1, a_signature(cpu=1)), Waiting(90, "o2", "j", 1, a_signature(cpu=1))]
    decision = decide(a_world(a_row("t", cpu=1)), queues(waiting))
    assert placed_of(decision) == {("o2", "j"): 1}
    assert decision.refused == {"InsufficientCapacity": 1}


def test_fractions_fill_a_target_exactly() -> None:
    waiting = [Waiting(50, "o", "j", 20, a_signature(cpu=0.1))]
    assert decide(a_world(a_row("t", cpu=1)), queues(waiting)).placed() == 10


def test_what_is_left_when_the_budget_is_spent_is_queued() -> None:
    waiting = [Waiting(50, "o1", "j", 5, a_signature(cpu=1)), Waiting(40, "o2", "j", 2, a_signature(cpu=1))]
    decision = decide(a_world(a_row("t", cpu=100), settings=of(cycle_budget=3)), queues(waiting))
    assert placed_of(decision) == {("o1", "j"): 3}
    assert decision.refused == {"Queued": 4}
