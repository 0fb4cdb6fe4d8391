"""Happenings become events: repeated ones are counted, too many are dropped and told."""

from __future__ import annotations

import itertools

import pytest

from controlplane.model.event import (
    AGAIN_SECONDS,
    ALLOWANCE,
    ALLOWANCE_A_SECOND,
    DROPPED,
    MOST_TEXT,
    WINDOW_SECONDS,
    About,
    Event,
    Folding,
    Happening,
)
from tests.builders import NOW, an_identity

LATER = "2026-01-01T00:00:05.000Z"
MANY = 10_000


def folding(**more: int) -> Folding:
    return Folding(an_identity, by="test@here", **more)


def a_happening(name: str = "o1", reason: str = "Failed", message: str = "why", revision: int = 0) -> Happening:
    return Happening(about=About(kind="Order", name=name), reason=reason, message=message, revision=revision)


def test_what_happened_once_is_one_event_by_its_recorder() -> None:
    events = folding(epoch=7)
    events.add(a_happening(revision=12), 0.0, NOW)
    [event] = events.take(MANY, 0.0, NOW)
    assert (event.about.name, event.reason, event.message, event.count) == ("o1", "Failed", "why", 1)
    assert (event.by, event.first, event.last, event.at_revision, event.epoch) == ("test@here", NOW, NOW, 12, 7)
    assert not events.waiting


def test_the_same_again_is_the_same_event_with_a_greater_count() -> None:
    events = folding()
    events.add(a_happening(revision=12), 0.0, NOW)
    [first] = events.take(MANY, 0.0, NOW)
    for _ in range(3):
        events.add(a_happening(revision=15), 5.0, LATER)
    [again] = events.take(MANY, 5.0, LATER)
    assert (again.id, again.count, again.first, again.last, again.at_revision) == (first.id, 4, NOW, LATER, 15)


@pytest.mark.parametrize("other", [a_happening(name="o2"), a_happening(reason="Held"), a_happening(message="another")])
def test_what_differs_in_one_thing_is_another_event(other: Happening) -> None:
    events = folding()
    events.add(a_happening(), 0.0, NOW)
    events.add(other, 0.0, NOW)
    assert [event.count for event in events.take(MANY, 0.0, NOW)] == [1, 1]


def test_after_the_window_the_same_is_a_new_event() -> None:
    events = folding()
    events.add(a_happening(), 0.0, NOW)
    [first] = events.take(MANY, 0.0, NOW)
    events.add(a_happening(), WINDOW_SECONDS, LATER)
    [second] = events.take(MANY, WINDOW_SECONDS, LATER)
    assert (second.id != first.id, second.count) == (True, 1)


def test_one_that_goes_on_happening_is_written_only_now_and_then() -> None:
    events = folding()
    written = 0
    for tick in itertools.takewhile(lambda tick: tick < 100, itertools.count()):
        at = tick / 10
        events.add(a_happening(), at, NOW)
        written += len(events.take(MANY, at, NOW))
    assert written == 1 + int(10 / AGAIN_SECONDS) - 1
    [last] = events.take(MANY, 12.0, NOW)
    assert last.count == 100


def test_beyond_the_allowance_events_are_dropped_counted_and_told() -> None:
    events = folding()
    for number in range(int(ALLOWANCE) + 30):
        events.add(a_happening(f"o{number}", "Failed" if number % 2 else "Held"), 0.0, NOW)
    assert len(events.take(MANY, 0.0, NOW)) == ALLOWANCE
    assert events.waiting
    [told] = events.take(MANY, 1 / ALLOWANCE_A_SECOND, LATER)
    assert (told.reason, told.message) == (DROPPED, "30 events were not kept: Held 15, Failed 15")
    assert not events.waiting


def test_the_allowance_fills_up_again() -> None:
    events = folding()
    for number in range(int(ALLOWANCE)):
        events.add(a_happening(f"o{number}"), 0.0, NOW)
    events.take(MANY, 0.0, NOW)
    for number in range(20):
        events.add(a_happening(f"p{number}"), 2.0, NOW)
    assert len(events.take(MANY, 2.0, NOW)) == 2 * ALLOWANCE_A_SECOND
    for number in range(2000):
        events.add(a_happening(f"q{number}"), 100_000.0, NOW)
    assert len(events.take(MANY, 100_000.0, NOW)) == ALLOWANCE


def test_a_repeat_needs_no_allowance() -> None:
    events = folding()
    for number in range(int(ALLOWANCE)):
        events.add(a_happening(f"o{number}"), 0.0, NOW)
    events.add(a_happening("o0"), 0.0, NOW)
    assert [event.count for event in events.take(1, 0.0, NOW)] == [2]


def test_some_at_a_time_and_none_twice() -> None:
    events = folding()
    for number in range(25):
        events.add(a_happening(f"o{number}"), 0.0, NOW)
    taken = [event.about.name for _ in range(3) for event in events.take(10, 0.0, NOW)]
    assert taken == [f"o{number}" for number in range(25)]


def test_what_could_not_be_written_comes_again_as_it_is_by_then() -> None:
    events = folding()
    events.add(a_happening(), 0.0, NOW)
    lost = events.take(MANY, 0.0, NOW)
    events.add(a_happening(), 0.0, LATER)
    events.give_back(lost)
    [again] = events.take(MANY, AGAIN_SECONDS, LATER)
    assert (again.id, again.count) == (lost[0].id, 2)


def test_a_new_recorder_goes_on_with_events_that_are_there() -> None:
    there = Event(id=an_identity(), about=About(kind="Order", name="o1"), reason="Failed", message="why", count=3,
                  first=NOW, last=NOW, at_revision=9, epoch=1)  # fmt: skip
    events = folding(epoch=2)
    events.go_on_from([there], 0.0)
    assert not events.waiting
    events.add(a_happening(revision=11), AGAIN_SECONDS, LATER)
    [again] = events.take(MANY, AGAIN_SECONDS, LATER)
    assert (again.id, again.count, again.epoch, again.at_revision) == (there.id, 4, 2, 11)


def test_a_long_message_is_cut_and_still_the_same_event() -> None:
    events = folding()
    for _ in range(2):
        events.add(a_happening(message="x" * 5000), 0.0, NOW)
    [event] = events.take(MANY, 0.0, NOW)
    assert (len(event.message), event.count) == (MOST_TEXT, 2)
