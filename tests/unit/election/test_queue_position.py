"""Who leads, how a term ended, and when pulses are believed: decisions on values alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.election.pulse_trust import PulseTrust
from controlplane.election.queue_position import Place, acting_leader, front, noted, queue_position, term_end
from controlplane.election.view import CandidateEntry
from controlplane.model.leadership import Candidate, Term, TermEnd


def entry(key: str, created: int, *, incarnation: str = "", ended: TermEnd | None = None) -> CandidateEntry:
    candidate = Candidate(
        id=key, incarnation=incarnation or f"life-{key}", grpc="", http="", pulse="", pid=1, version="", ended=ended
    )
    return CandidateEntry(key, candidate, created, created, created)


def a_term(epoch: int, ended: TermEnd | None = None) -> Term:
    return Term(epoch=epoch, id="x", incarnation="life-x", since="", ended=ended)


QUEUE = (entry("a", 3), entry("b", 5), entry("c", 9))


@pytest.mark.parametrize(
    ("key", "epoch", "place"),
    [
        ("a", 3, Place.FIRST),
        ("b", 5, Place.BEHIND),
        ("c", 9, Place.BEHIND),
        ("d", 4, Place.OUT),
        ("a", 2, Place.OUT),
    ],
)
def test_the_oldest_key_is_first_and_a_key_made_again_is_another(key: str, epoch: int, place: Place) -> None:
    assert queue_position(QUEUE, key, epoch).place is place


@given(st.lists(st.integers(1, 1000), unique=True))
def test_exactly_one_of_a_queue_is_first(revisions: list[int]) -> None:
    queue = [entry(str(revision), revision) for revision in revisions]
    places = [queue_position(queue, one.key, one.create_revision).place for one in queue]
    assert places.count(Place.FIRST) == min(1, len(queue))
    assert Place.OUT not in places


@given(st.lists(st.integers(1, 1000), unique=True, min_size=2), st.data())
def test_who_is_first_stays_first_while_its_key_is_there(revisions: list[int], data: st.DataObject) -> None:
    queue = [entry(str(revision), revision) for revision in revisions]
    leader = front(queue)
    assert leader is not None
    gone = data.draw(st.sets(st.sampled_from([one.key for one in queue if one is not leader])))
    newer = entry("newer", 1001)
    later = [one for one in queue if one.key not in gone] + [newer]
    assert queue_position(later, leader.key, leader.create_revision).place is Place.FIRST


@pytest.mark.parametrize(
    ("queue", "term", "leader"),
    [
        ((), None, None),
        (QUEUE, None, None),
        (QUEUE, a_term(1), None),
        (QUEUE, a_term(3), "a"),
        (QUEUE[1:], a_term(3), None),
        ((), a_term(3), None),
    ],
)
def test_a_leader_acts_once_its_record_is_there(
    queue: Sequence[CandidateEntry], term: Term | None, leader: str | None
) -> None:
    found = acting_leader(queue, term)
    assert (found.key if found else None) == leader


def test_the_end_of_a_term_is_what_is_known_about_it() -> None:
    note = TermEnd(epoch=3, how="pulse-closed", incarnation="life-x")
    assert term_end(None, None).how == "first"
    assert term_end(a_term(3), note) == note
    assert term_end(a_term(3), None) == TermEnd(epoch=3, how="lease-gone", incarnation="life-x")
    assert term_end(a_term(4), note).how == "lease-gone"


def test_a_note_is_found_in_whoever_made_it() -> None:
    note = TermEnd(epoch=3, how="pulse-silent")
    queue = (entry("b", 5), entry("c", 9, ended=note))
    assert noted(queue, 3) == note
    assert noted(queue, 4) is None


WRONG = TermEnd(epoch=3, how="pulse-closed", incarnation="life-a")


def test_pulses_are_believed_until_an_ended_incarnation_campaigns_again() -> None:
    trust = PulseTrust(15.0)
    assert not trust.observe((entry("b", 5, ended=WRONG),), None, 100.0)
    assert trust.given(100.0)
    assert trust.observe((entry("b", 5, ended=WRONG), entry("a2", 10, incarnation="life-a")), None, 101.0)
    assert not trust.given(101.0)
    assert not trust.given(115.9)
    assert trust.given(116.0)


def test_one_wrong_end_counts_once_however_often_it_is_seen() -> None:
    trust = PulseTrust(15.0)
    queue = (entry("b", 5, ended=WRONG), entry("a2", 10, incarnation="life-a"))
    assert trust.observe(queue, None, 100.0)
    assert not trust.observe(queue, a_term(5, ended=WRONG), 110.0)
    assert trust.given(115.0)


def test_the_term_record_alone_shows_a_wrong_end() -> None:
    trust = PulseTrust(15.0)
    assert trust.observe((entry("a2", 10, incarnation="life-a"),), a_term(5, ended=WRONG), 100.0)


@pytest.mark.parametrize(
    ("end", "back"),
    [
        (WRONG, entry("a2", 10, incarnation="another life")),
        (TermEnd(epoch=3, how="stepped-down", incarnation="life-a"), entry("a2", 10, incarnation="life-a")),
        (TermEnd(epoch=3, how="lease-gone", incarnation="life-a"), entry("a2", 10, incarnation="life-a")),
        (WRONG, entry("a", 2, incarnation="life-a")),
    ],
)
def test_what_is_no_wrong_end(end: TermEnd, back: CandidateEntry) -> None:
    """A new process, a leader that left, a lease that ran out, a key from before the end."""
    trust = PulseTrust(15.0)
    assert not trust.observe((entry("b", 5, ended=end), back), a_term(5, ended=end), 100.0)
    assert trust.given(100.0)
