"""P3: one fulfilment an attempt, one process an attempt."""

from __future__ import annotations

import pytest

from controlplane.model.cluster import ClusterStatus
from controlplane.store import keys
from controlplane.verify.joblet_records import JobletRecord, parse
from controlplane.verify.p3_attempts import AttemptsCheck
from tests.unit.verify import past
from tests.unit.verify.past import ORDER, Past


def retried() -> Past:
    """Attempt 1 placed as A and ended, attempt 2 placed as B."""
    story = Past()
    story.commit({past.place("A"): past.fulfilment("A")})
    story.commit({past.place("A"): None, keys.ended(ORDER, "A"): past.ended("A")})
    story.commit({past.place("B"): past.fulfilment("B", attempt=2)})
    return story


def whys(story: Past, *, since: int = 1) -> list[str]:
    return [violation.why for violation in story.told_to(AttemptsCheck(), since=since).verdict().violations]


@pytest.mark.parametrize("since", [1, 2, 3, 4])
def test_attempts_that_follow_each_other_are_good_wherever_history_begins(since: int) -> None:
    assert whys(retried(), since=since) == []


def test_an_attempt_that_two_fulfilments_carry_is_found() -> None:
    story = Past()
    story.commit({past.place("A"): past.fulfilment("A")})
    story.commit({past.place("B"): past.fulfilment("B")})
    check = story.told_to(AttemptsCheck())
    assert check.verdict().ok is False
    assert check.duplicates == [(ORDER, "render", 0, 1)]


@pytest.mark.parametrize("since", [1, 2, 3, 4])
def test_an_attempt_that_is_placed_again_after_its_end_is_found(since: int) -> None:
    story = retried()
    story.commit({past.place("C"): past.fulfilment("C", attempt=1)})
    assert len(whys(story, since=since)) == 1


def test_a_skipped_attempt_is_found() -> None:
    story = retried()
    story.commit({past.place("B"): None, keys.ended(ORDER, "B"): past.ended("B", attempt=2)})
    story.commit({past.place("C"): past.fulfilment("C", attempt=4)})
    assert whys(story) == [f"carries attempt 4 of render/0 of order {ORDER}, but the one before was 2"]


def test_a_next_attempt_beside_the_living_one_is_found() -> None:
    story = retried()
    story.commit({past.place("C"): past.fulfilment("C", attempt=3)})
    assert whys(story) == [f"carries attempt 3 of render/0 of order {ORDER} while B is still desired"]


def test_a_release_and_the_next_placement_may_share_a_transaction() -> None:
    story = retried()
    story.commit({past.place("C"): past.fulfilment("C", attempt=3), past.place("B"): None})
    assert whys(story) == []


def test_a_fulfilment_that_is_asked_to_stop_is_no_second_carrier() -> None:
    story = retried()
    story.commit({past.place("B"): past.fulfilment("B", attempt=2, want="stop")})
    assert whys(story) == []


def test_a_fulfilment_that_is_rewritten_to_carry_something_else_is_found() -> None:
    story = retried()
    story.commit({past.place("B"): past.fulfilment("B", attempt=3)})
    assert len(whys(story)) == 1


def test_a_fulfilment_that_comes_back_after_its_end_is_found() -> None:
    story = retried()
    story.commit({past.place("B"): None})
    story.commit({past.place("B"): past.fulfilment("B", attempt=2)})
    assert whys(story) == [f"was placed again after its end, with render/0 of order {ORDER}"]


def test_an_end_by_a_fulfilment_that_never_carried_the_attempt_is_found() -> None:
    story = retried()
    story.commit({keys.ended(ORDER, "X"): past.ended("X", attempt=2)})
    story.commit({keys.ended(ORDER, "Y"): past.ended("Y", attempt=3)})
    assert len(whys(story)) == 2


def test_an_attempt_whose_fulfilment_vanished_ends_under_its_own_name() -> None:
    story = retried()
    story.commit({past.place("B"): None})
    story.commit({keys.ended(ORDER, "lost-render-0-2"): past.ended("lost-render-0-2", attempt=2)})
    story.commit({past.place("C"): past.fulfilment("C", attempt=3)})
    assert whys(story) == []


def test_two_carriers_in_the_oldest_state_are_found() -> None:
    story = Past()
    story.commit({past.place("A"): past.fulfilment("A"), keys.ended(ORDER, "X"): past.ended("X")})
    assert len(whys(story, since=story.revision)) == 1


def record(event: str = "started", *, attempt: int = 1, target: str = "eu") -> JobletRecord:
    return JobletRecord(event, ORDER, "render", 0, attempt, "A", target, (), 7, 1.0, "boot")


def test_one_start_an_attempt_is_good() -> None:
    check = AttemptsCheck()
    for line in (record(), record("ended"), record(attempt=2)):
        check.record(line)
    assert (check.verdict().ok, check.verdict().checked) == (True, 2)


@pytest.mark.parametrize("target", ["eu", "us"])
def test_an_attempt_that_was_started_twice_is_found_on_one_target_and_on_two(target: str) -> None:
    check = AttemptsCheck()
    check.record(record())
    check.record(record(target=target))
    assert check.verdict().ok is False
    assert check.duplicates == [(ORDER, "render", 0, 1)]


def test_a_line_that_was_cut_short_is_no_evidence() -> None:
    assert parse(b'{"event":"started","order":"01') is None
    assert parse(b"\xff\xfe\n") is None


def test_after_a_restore_attempts_may_go_on_above_what_joblets_knew_and_no_further() -> None:
    story = retried()
    story.commit({past.place("B"): None, keys.ended(ORDER, "B"): past.ended("B", attempt=2)})
    story.commit({keys.CLUSTER_STATUS: ClusterStatus(epoch=1, cluster_id="c", since="", restored=1, attempt_floor=5)})
    story.commit({past.place("C"): past.fulfilment("C", attempt=6)})
    assert whys(story) == []
    story.commit({past.place("C"): None, keys.ended(ORDER, "C"): past.ended("C", attempt=6)})
    story.commit({past.place("D"): past.fulfilment("D", attempt=8)})
    assert len(whys(story)) == 1
