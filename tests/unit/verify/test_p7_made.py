"""P7 for targets that scaling made: their steps, and that none goes with work on it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controlplane.model.scalepolicy import MADE_STEPS, REMOVE, Made, MadePhase
from controlplane.store import keys
from controlplane.verify.p7_lifecycle import LifecycleCheck
from tests.unit.verify import past
from tests.unit.verify.past import Past

KEY = keys.made("eu")
UP = Made(id="A", target="eu", policy="farm", provider="local", epoch=2, request="A", phase=MadePhase.UP)
LEAVING = replace(UP, want=REMOVE)
REMOVING = replace(LEAVING, phase=MadePhase.REMOVING)
PLACE = keys.desired("eu", "F")
PLACED = past.fulfilment("F")


def whys(story: Past, *, since: int = 1) -> list[str]:
    return [violation.why for violation in story.told_to(LifecycleCheck(), since=since).verdict().violations]


@pytest.mark.parametrize("before", MadePhase)
@pytest.mark.parametrize("after", MadePhase)
def test_a_made_target_goes_along_its_steps_only(before: MadePhase, after: MadePhase) -> None:
    story = Past()
    since = story.commit({KEY: replace(UP, phase=before)})
    story.commit({KEY: replace(UP, phase=after)})
    assert (whys(story, since=since) == []) == ((before, after) in MADE_STEPS)


def test_it_goes_when_nothing_is_on_it() -> None:
    story = Past()
    story.commit({KEY: UP})
    story.commit({PLACE: PLACED})
    story.commit({PLACE: None})
    story.commit({KEY: LEAVING})
    story.commit({KEY: REMOVING})
    story.commit({KEY: None})
    assert whys(story) == []


def test_a_placement_may_travel_with_the_wish_but_not_come_after_it() -> None:
    story = Past()
    story.commit({KEY: UP})
    story.commit({KEY: LEAVING, PLACE: PLACED})
    assert whys(story) == []
    story.commit({keys.desired("eu", "G"): past.fulfilment("G")})
    assert whys(story) == ["was placed on eu, which is to be removed"]


def test_removing_with_work_on_it_is_a_broken_promise() -> None:
    story = Past()
    story.commit({KEY: LEAVING, PLACE: PLACED})
    since = story.commit({KEY: replace(LEAVING, error="x")})
    story.commit({KEY: REMOVING})
    assert whys(story, since=since) == ["eu was removed with 1 fulfilments on it"]


def test_a_record_goes_last() -> None:
    story = Past()
    story.commit({KEY: UP})
    story.commit({KEY: None})
    assert whys(story) == ["was deleted while it was Up"]
