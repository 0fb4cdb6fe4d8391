"""P5: placements fit, unless the target shrank under the decision."""

from __future__ import annotations

from controlplane.model.quantity import Number
from controlplane.store import keys
from controlplane.verify.p5_capacity import CapacityCheck
from tests.unit.verify import past
from tests.unit.verify.past import Past

TARGET = keys.config("targets", "eu")
LIVE = keys.live("eu")


def with_room(cpu: Number = 2) -> Past:
    story = Past()
    story.commit({TARGET: past.target(cpu=cpu), LIVE: past.live(cpu=8)})
    return story


def put(story: Past, name: str, cpu: Number) -> int:
    return story.commit({past.place(name): past.fulfilment(name, cpu=cpu)})


def whys(story: Past, *, since: int = 1) -> list[str]:
    return [violation.why for violation in story.told_to(CapacityCheck(), since=since).verdict().violations]


def test_placements_up_to_the_capacity_fit_and_released_room_is_used_again() -> None:
    story = with_room(2)
    put(story, "A", 1.5)
    put(story, "B", 0.5)
    story.commit({past.place("A"): None})
    put(story, "C", 1.5)
    found = story.told_to(CapacityCheck()).verdict()
    assert (found.ok, found.checked) == (True, 3)


def test_a_placement_beyond_the_capacity_is_found() -> None:
    story = with_room(2)
    put(story, "A", 1.5)
    put(story, "B", 1)
    assert whys(story) == ["brings cpu on eu to 2.5 of 2"]
    assert len(whys(story, since=2)) == 1
    assert len(whys(story, since=3)) == 1


def test_the_smaller_of_configured_and_reported_capacity_counts() -> None:
    story = with_room(2)
    story.commit({LIVE: past.live(cpu=1)})
    story.commit({keys.cycle(2, 1): past.cycle(2, 1, revision=story.revision)})
    put(story, "A", 2)
    assert whys(story) == ["brings cpu on eu to 2 of 1"]


def test_a_quantity_that_the_target_does_not_have_has_no_room() -> None:
    story = Past()
    story.commit({TARGET: past.target(memory=8)})
    put(story, "A", 1)
    assert whys(story) == ["brings cpu on eu to 1 of 0"]


def test_a_target_that_shrinks_below_what_runs_breaks_nothing_but_takes_nothing_more() -> None:
    story = with_room(2)
    put(story, "A", 2)
    shrunk = story.commit({TARGET: past.target(cpu=1)})
    assert whys(story) == []
    put(story, "B", 0.5)
    story.commit({keys.cycle(2, 1): past.cycle(2, 1, revision=shrunk)})
    assert whys(story) == ["brings cpu on eu to 2.5 of 1"]


def test_a_placement_that_was_decided_before_the_target_shrank_is_excused() -> None:
    story = with_room(2)
    decided = story.revision
    story.commit({TARGET: past.target(cpu=1)})
    put(story, "A", 2)
    story.commit({keys.cycle(2, 1): past.cycle(2, 1, revision=decided)})
    assert whys(story) == []


def test_a_placement_that_was_decided_after_the_target_shrank_is_found() -> None:
    story = with_room(2)
    shrunk = story.commit({TARGET: past.target(cpu=1)})
    story.commit({past.place("A"): past.fulfilment("A", cpu=2), keys.cycle(2, 1): past.cycle(2, 1, revision=shrunk)})
    assert whys(story) == ["brings cpu on eu to 2 of 1"]


def test_without_a_record_of_its_cycle_a_placement_is_excused_only_by_what_came_after_the_last_record() -> None:
    story = with_room(2)
    shrunk = story.commit({TARGET: past.target(cpu=1)})
    put(story, "A", 2)
    assert whys(story) == []
    story = with_room(2)
    shrunk = story.commit({TARGET: past.target(cpu=1)})
    story.commit({keys.cycle(2, 9): past.cycle(2, 9, revision=shrunk)})
    put(story, "A", 2)
    assert len(whys(story)) == 1


def test_a_rewritten_fulfilment_is_not_counted_twice() -> None:
    story = with_room(2)
    put(story, "A", 2)
    story.commit({past.place("A"): past.fulfilment("A", cpu=2, want="stop")})
    story.commit({past.place("A"): None})
    put(story, "B", 2)
    assert whys(story) == []


def test_a_session_that_ends_between_decision_and_commit_is_excused() -> None:
    story = Past()
    story.commit({TARGET: past.target(), LIVE: past.live(cpu=2)})
    decided = story.revision
    story.commit({LIVE: None})
    put(story, "A", 2)
    story.commit({keys.cycle(2, 1): past.cycle(2, 1, revision=decided)})
    assert whys(story) == []
