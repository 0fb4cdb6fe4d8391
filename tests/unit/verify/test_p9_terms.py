"""P9: leaders that follow each other too fast, told by the stamps of one writer at a time."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from controlplane.model.leadership import TermEnd
from controlplane.store import keys
from controlplane.verify.p9_leader import LeaderCheck
from controlplane.verify.p9_terms import MOST_OF_A_PROCESS, MOST_OF_A_REPLICA
from tests.unit.verify import past
from tests.unit.verify.past import Past

TTL = 5.0


def reigns(terms: Sequence[tuple[str, str, float]]) -> Past:
    """One after the other: who led (replica, process), and when it began by that one's clock."""
    story, before = Past(), 0
    for lease, (name, process, second) in enumerate(terms, start=1):
        epoch = story.elect(lease)
        if before:
            story.commit({keys.candidate(lease - 1): None})
        end = TermEnd(epoch=before, how="stepped-down" if before else "first")
        since = f"2026-11-16T00:{int(second) // 60:02d}:{second % 60:06.3f}Z"
        story.commit({keys.term(epoch): replace(past.term(epoch, end), id=name, incarnation=process, since=since)})
        before = epoch
    return story


def rushed(terms: Sequence[tuple[str, str, float]]) -> list[str]:
    return [violation.key for violation in reigns(terms).told_to(LeaderCheck()).verdict(ttl_seconds=TTL).violations]


def in_turns(count: int, every: float, *, restarted: bool = False) -> list[tuple[str, str, float]]:
    """Three replicas fall over the same thing one after the other, each with a clock of its own."""
    off = (0.0, 900.0, 1800.0)
    return [
        (f"replica-{at % 3}", f"{at % 3}-{at if restarted else 0}", off[at % 3] + at * every) for at in range(count)
    ]


def test_leaders_that_fall_over_the_same_work_in_turns_are_found() -> None:
    (first, *_) = rushed(in_turns(60, 0.2))
    assert first == reigns(in_turns(3 * MOST_OF_A_PROCESS + 1, 0.2)).changes[-1].key


def test_a_violation_says_whose_terms_they_are_and_is_told_once_for_each_window() -> None:
    verdict = reigns(in_turns(226, 0.2)).told_to(LeaderCheck()).verdict(ttl_seconds=TTL)
    assert verdict.ok is False
    assert "is term 5 of replica-0 (0-0) within 15 s (3 TTL)" in verdict.violations[0].why
    assert len(verdict.violations) == 9, "three windows of three processes"


def test_replicas_that_die_in_every_term_are_found() -> None:
    assert rushed(in_turns(3 * MOST_OF_A_REPLICA + 1, 0.4, restarted=True))


def test_one_change_of_leader_for_each_fault_is_in_order() -> None:
    assert rushed(in_turns(30, 4.0)) == []


def test_a_drill_that_kills_a_leader_every_second_is_in_order() -> None:
    assert rushed(in_turns(20, 1.0, restarted=True)) == []


def test_a_longer_lease_makes_the_window_longer() -> None:
    story = reigns(in_turns(30, 4.0))
    assert story.told_to(LeaderCheck()).verdict(ttl_seconds=30.0).ok is False


def test_stamps_of_two_machines_are_not_compared() -> None:
    assert rushed([(f"replica-{at}", f"{at}", 0.0) for at in range(30)]) == []


def test_a_clock_that_is_set_back_says_nothing_about_the_terms_before() -> None:
    assert rushed([("replica-1", "1", 3000.0 - 60.0 * at) for at in range(30)]) == []


def test_a_term_without_a_time_is_left_out() -> None:
    story = Past()
    epoch = story.elect()
    story.commit({keys.term(epoch): replace(past.term(epoch, TermEnd(epoch=0, how="first")), since="x")})
    assert story.told_to(LeaderCheck()).verdict(ttl_seconds=TTL).ok
