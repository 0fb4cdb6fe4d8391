"""Decisions that survive orders and targets that make the engine raise: those are named, and all others are placed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.engine.decide import decide
from controlplane.engine.guarding import culprits, decide_guarded, room_of
from controlplane.engine.service import Group, Queue
from controlplane.model.isolation import Casualties
from tests.builders import a_row, a_signature, a_world

# What no check lets in, as the policy of a job or as a number of tasks: whoever works with it raises.
POISON: Any = object()


def a_queue(order: str, *, poisoned: bool = False, count: int = 1, **said: Any) -> Queue:
    signature = a_signature(cpu=1, **said)
    if poisoned:
        signature = replace(signature, policy=POISON)
    group = Group(("~", "", order, 0), "job", count)
    return Queue(priority=50, owner=order, signature=signature, groups=(group,), tasks=count)


def orders_of(decision: Any) -> set[str]:
    return {batch.order for batch in decision.batches}


@given(st.sets(st.integers(0, 40), max_size=10), st.integers(0, 41))
def test_culprits_are_those_without_which_nothing_raises(bad: set[int], size: int) -> None:
    def probe(items: Sequence[int]) -> None:
        for item in items:
            if item in bad:
                raise ValueError(item)

    found = list(culprits(range(size), probe))
    assert {item for item, _ in found} == {item for item in bad if item < size}
    assert all(error.args == (item,) for item, error in found)


def test_of_two_that_raise_together_only_one_is_a_culprit() -> None:
    def probe(items: Sequence[str]) -> None:
        if {"a", "b"} <= set(items):
            raise ValueError

    assert [item for item, _ in culprits(["x", "a", "y", "b", "z"], probe)] == ["b"]


def test_of_very_many_culprits_all_are_left_out_and_the_search_is_bounded() -> None:
    probes = 0

    def probe(items: Sequence[int]) -> None:
        nonlocal probes
        probes += 1
        if items:
            raise ValueError

    assert len(list(culprits(range(100_000), probe))) == 100_000
    assert probes < 1000


def test_what_raises_whatever_is_left_out_is_raised() -> None:
    def probe(_items: Sequence[int]) -> None:
        raise ValueError("nobody's fault")

    with pytest.raises(ValueError, match="nobody's fault"):
        list(culprits(range(3), probe))


def test_an_order_that_raises_is_named_and_the_others_are_placed_as_if_it_were_not_there() -> None:
    world = a_world(a_row("t1", cpu=4))
    queues = [a_queue("good-1"), a_queue("bad", poisoned=True), a_queue("good-2")]
    with pytest.raises(AttributeError):
        decide(world, queues)
    ward = Casualties()
    _, decision = decide_guarded(world, lambda: queues, ward)
    assert list(ward.errors) == [("Order", "bad")]
    assert decision == decide(world, [queues[0], queues[2]])
    assert orders_of(decision) == {"good-1", "good-2"}


def test_many_orders_that_raise_are_found_in_one_pass() -> None:
    world = a_world(a_row("t1", cpu=4))
    queues = [a_queue(f"bad-{number:03}", poisoned=True) for number in range(200)]
    ward = Casualties()
    _, decision = decide_guarded(world, lambda: [*queues, a_queue("good")], ward)
    assert len(ward.errors) == 200
    assert orders_of(decision) == {"good"}


def test_of_a_queue_only_the_order_that_raises_is_left_out() -> None:
    world = a_world(a_row("t1", cpu=4))
    good, bad = a_queue("good"), a_queue("bad")
    poisoned = Group(("~", "", "bad", 0), "job", POISON)
    together = msgspec.structs.replace(good, groups=(*good.groups, poisoned), tasks=2)
    ward = Casualties()
    _, decision = decide_guarded(world, lambda: [together], ward)
    assert list(ward.errors) == [("Order", bad.groups[0].order)]  # type: ignore[index]
    assert orders_of(decision) == {"good"}


def test_nothing_of_a_gang_that_raises_half_way_is_placed() -> None:
    world = a_world(a_row("t1", cpu=4))
    groups = tuple(Group(("~", "", "gang", position), f"job-{position}", 1) for position in range(2))
    sound = a_signature(cpu=1)
    parts = (sound, replace(sound, policy=POISON))
    gang = Queue(priority=90, owner="a", signature=sound, groups=groups, tasks=2, parts=parts)
    ward = Casualties()
    _, decision = decide_guarded(world, lambda: [gang, a_queue("good")], ward)
    assert list(ward.errors) == [("Order", "gang")]
    assert orders_of(decision) == {"good"}


def test_a_target_that_raises_is_named_and_the_others_take_the_work() -> None:
    bad = replace(a_row("bad", cpu=4), slots=10**30)
    world = a_world(a_row("a", cpu=4), bad, a_row("z", cpu=4))
    ward = Casualties()
    seen, decision = decide_guarded(world, lambda: [a_queue("order", count=8)], ward)
    assert list(ward.errors) == [("Target", "bad")]
    assert [row.name for row in seen.targets] == ["a", "z"]
    assert decision.placed() == 8
    assert room_of(world, Casualties()).world.targets == seen.targets
