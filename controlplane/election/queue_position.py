"""The queue of candidates: the position of a candidate, the leader, and how the term before ended. Pure functions.

etcd's election recipe: the candidate key with the lowest create revision leads. Because every key is created by a
transaction of its own and keeps its create revision, the first candidate stays first until its key is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from controlplane.election.view import CandidateEntry
from controlplane.model.leadership import Term, TermEnd


class Place(Enum):
    FIRST = "first"
    BEHIND = "behind"
    OUT = "out"  # the own key is absent


class How:
    """How a term ended, as recorded by the next leader."""

    FIRST = "first"
    STEPPED_DOWN = "stepped-down"
    PULSE_CLOSED = "pulse-closed"
    PULSE_SILENT = "pulse-silent"
    LEASE_GONE = "lease-gone"


PULSE_ENDS = frozenset({How.PULSE_CLOSED, How.PULSE_SILENT})


@dataclass(frozen=True, slots=True)
class QueuePosition:
    place: Place
    own: CandidateEntry | None
    leader: CandidateEntry | None


def front(candidates: Sequence[CandidateEntry]) -> CandidateEntry | None:
    return min(candidates, key=lambda entry: entry.create_revision, default=None)


def queue_position(candidates: Sequence[CandidateEntry], key: str, epoch: int) -> QueuePosition:
    """The position of the key created at `epoch`; a key that was deleted and created again is another candidate."""
    leader = front(candidates)
    own = next((entry for entry in candidates if entry.key == key and entry.create_revision == epoch), None)
    if own is None:
        return QueuePosition(Place.OUT, None, leader)
    return QueuePosition(Place.FIRST if own is leader else Place.BEHIND, own, leader)


def acting_leader(candidates: Sequence[CandidateEntry], last_term: Term | None) -> CandidateEntry | None:
    """The first candidate once its term is recorded; None before, since a leader without a record does not act yet."""
    leader = front(candidates)
    if leader is None or last_term is None or last_term.epoch != leader.create_revision:
        return None
    return leader


def noted(candidates: Sequence[CandidateEntry], epoch: int) -> TermEnd | None:
    """How the epoch ended, from the note in the key of the candidate that ended the epoch."""
    ends = (entry.candidate.ended for entry in candidates)
    return next((end for end in ends if end is not None and end.epoch == epoch), None)


def term_end(last_term: Term | None, note: TermEnd | None) -> TermEnd:
    """How the last recorded term ended; without a note about the term, its lease is gone."""
    if last_term is None:
        return TermEnd(epoch=0, how=How.FIRST)
    if note is not None and note.epoch == last_term.epoch:
        return note
    return TermEnd(epoch=last_term.epoch, how=How.LEASE_GONE, incarnation=last_term.incarnation)
