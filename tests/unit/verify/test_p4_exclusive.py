"""P4: a unique resource has one holder, in etcd and in reality."""

from __future__ import annotations

import pytest

from controlplane.store import keys
from controlplane.verify.joblet_records import JobletRecord
from controlplane.verify.p4_exclusive import ExclusiveCheck
from controlplane.verify.promise_verdicts import PromiseVerdict
from tests.unit.verify import past
from tests.unit.verify.past import ORDER, Past

LICENCE = keys.claim("licence")


def held_in_turn() -> Past:
    """A holds the licence, releases it, B holds it."""
    story = Past()
    story.commit({past.place("A"): past.fulfilment("A", holds=("licence",)), LICENCE: past.claim("licence", "A")})
    story.commit({past.place("A"): None, LICENCE: None})
    story.commit({past.place("B"): past.fulfilment("B", holds=("licence",)), LICENCE: past.claim("licence", "B")})
    return story


def whys(story: Past, *, since: int = 1) -> list[str]:
    return [violation.why for violation in story.told_to(ExclusiveCheck(), since=since).verdict().violations]


@pytest.mark.parametrize("since", [1, 2, 3, 4])
def test_holders_in_turn_are_good_wherever_history_begins(since: int) -> None:
    assert whys(held_in_turn(), since=since) == []


def test_a_holder_that_is_asked_to_stop_still_holds() -> None:
    story = held_in_turn()
    story.commit({past.place("B"): past.fulfilment("B", holds=("licence",), want="stop")})
    assert whys(story) == []


def test_a_placement_without_a_claim_is_found() -> None:
    story = Past()
    story.commit({past.place("A"): past.fulfilment("A", holds=("licence",))})
    assert whys(story) == ["is held by fulfilment A, but not claimed"]


def test_a_claim_that_goes_before_its_holder_is_found() -> None:
    story = held_in_turn()
    gone = story.commit({LICENCE: None})
    (violation,) = story.told_to(ExclusiveCheck()).verdict().violations
    assert (violation.key, violation.revision) == (LICENCE, gone)


@pytest.mark.parametrize("since", [1, 5])
def test_a_second_holder_is_found_in_history_and_in_the_oldest_state(since: int) -> None:
    story = held_in_turn()
    story.commit({past.place("C"): past.fulfilment("C", holds=("licence",))})
    assert whys(story, since=since)[0] == "is held by 2 fulfilments: B, C"


def test_a_claim_that_passes_on_without_a_release_is_found() -> None:
    story = held_in_turn()
    story.commit(
        {LICENCE: past.claim("licence", "C"), past.place("B"): None}
        | {past.place("C"): past.fulfilment("C", holds=("licence",))}
    )
    assert whys(story) == ["passed from fulfilment B to C without having been released"]


def line(event: str, moment: float, name: str, *, holds: str = "licence", boot: str = "boot") -> JobletRecord:
    return JobletRecord(event, ORDER, name.lower(), 0, 1, name, f"target-{name}", (holds,), 7, moment, boot)


def ran(
    name: str, start: float, end: float, *, holds: str = "licence", boot: str = "boot"
) -> tuple[JobletRecord, JobletRecord]:
    return line("started", start, name, holds=holds, boot=boot), line("ended", end, name, holds=holds, boot=boot)


def overlaps(*lines: JobletRecord, alive: str = "", now: float = 100.0) -> list[str]:
    check = ExclusiveCheck()
    for each in lines:
        check.record(each)
    check.records_end(lambda record: record.fulfilment in alive, now)
    return [violation.why for violation in check.verdict().violations]


def test_holders_that_ran_after_each_other_are_good() -> None:
    assert (
        overlaps(line("started", 1, "A"), line("ended", 2, "A"), line("started", 2, "B"), line("ended", 3, "B")) == []
    )


def test_holders_that_ran_beside_each_other_are_found() -> None:
    found = overlaps(*ran("A", 1, 3), *ran("B", 2.5, 4))
    assert found == ["fulfilment B on target-B ran 0.500 s beside fulfilment A on target-A"]


def test_a_holder_that_ran_within_an_earlier_one_does_not_hide_the_next() -> None:
    assert len(overlaps(*ran("A", 1, 10), *ran("B", 2, 3), *ran("C", 5, 6))) == 2


def test_a_holder_that_still_lives_reaches_to_now() -> None:
    lines = (line("started", 1, "A"), line("started", 5, "B"), line("ended", 6, "B"))
    assert overlaps(*lines, alive="A") != []
    assert overlaps(*lines) == []


def judged(*lines: JobletRecord) -> tuple[PromiseVerdict, str]:
    """What is said when none of them lives."""
    check = ExclusiveCheck()
    for record in lines:
        check.record(record)
    note = check.records_end(lambda record: False, 9.0)
    return check.verdict(note), note


def test_a_holder_that_died_without_a_record_and_was_the_last_one_is_noted() -> None:
    verdict, note = judged(*ran("A", 1, 2), line("started", 3, "B"))
    assert (verdict.ok, note) == (True, "1 holders died without a record of their end, and nobody held the same later")


def test_whether_a_holder_that_died_without_a_record_overlapped_the_next_one_is_not_known() -> None:
    verdict, _ = judged(line("started", 1, "A"), *ran("B", 5, 6))
    assert (verdict.ok, verdict.violations) == (None, ())
    assert "1 holders died without a record of their end, and others held the same later" in verdict.why


def test_a_holder_without_a_record_of_its_end_that_began_beside_another_is_found() -> None:
    verdict, _ = judged(*ran("A", 1, 5), line("started", 3, "B"))
    assert verdict.ok is False


def test_other_resources_and_other_boots_do_not_overlap() -> None:
    assert overlaps(*ran("A", 1, 9), *ran("B", 2, 3, holds="other")) == []
    assert overlaps(*ran("A", 1, 9), *ran("B", 2, 3, boot="next")) == []
