"""Who hears of which changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from controlplane.cache.audience import Audience, ListenerStage


class Change(NamedTuple):
    tree: str
    number: int


A1, B2, A3, C4 = Change("a", 1), Change("b", 2), Change("a", 3), Change("c", 4)


def told(audience: Audience[Change], *deltas: Change) -> None:
    for listener, part in audience.concerned(deltas):
        listener(part, 0)


def a_listener(heard: list[tuple[Change, ...]]) -> Callable[[Sequence[Change], int], None]:
    return lambda deltas, _revision: heard.append(tuple(deltas))


def test_a_listener_hears_of_its_trees_only_in_order_and_in_one_call() -> None:
    audience: Audience[Change] = Audience()
    everything: list[tuple[Change, ...]] = []
    some: list[tuple[Change, ...]] = []
    other: list[tuple[Change, ...]] = []
    audience.add(a_listener(some), ("a", "c"))
    audience.add(a_listener(everything), None)
    audience.add(a_listener(other), ("d",))
    told(audience, A1, B2, A3, C4)
    assert everything == [(A1, B2, A3, C4)]
    assert some == [(A1, A3, C4)]
    assert other == []


def test_whoever_hears_of_everything_comes_first() -> None:
    audience: Audience[Change] = Audience()
    order: list[str] = []
    audience.add(lambda _deltas, _revision: order.append("some"), ("a",))
    audience.add(lambda _deltas, _revision: order.append("all"), None)
    told(audience, A1)
    assert order == ["all", "some"]


def test_state_is_derived_before_anybody_reacts_whoever_came_first() -> None:
    audience: Audience[Change] = Audience()
    order: list[str] = []
    audience.add(lambda _deltas, _revision: order.append("reacts"), None)
    audience.add(lambda _deltas, _revision: order.append("reacts to some"), ("a",))
    audience.add(lambda _deltas, _revision: order.append("derives"), None, ListenerStage.DERIVE)
    told(audience, A1)
    assert order == ["derives", "reacts", "reacts to some"]


def test_a_listener_that_stops_hears_nothing_more_and_may_stop_twice() -> None:
    audience: Audience[Change] = Audience()
    heard: list[tuple[Change, ...]] = []
    stop = audience.add(a_listener(heard), ("a",))
    stop_all = audience.add(a_listener(heard), None)
    for _ in range(2):
        stop()
        stop_all()
    told(audience, A1)
    assert heard == []
