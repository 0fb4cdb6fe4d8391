"""Who leads, seen from one candidate, and how the term before it ended. Pure: values in, values out.

etcd's election recipe: the candidate key with the lowest create revision leads. Because every key is created by a
transaction of its own and keeps its create revision, whoever is first stays first until its key is gone.
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
    OUT = "out"  # the own key is not there


class How:
    """How a term ended, as its successor writes it down."""

    FIRST = "first"
    STEPPED_DOWN = "stepped-down"
    PULSE_CLOSED = "pulse-closed"
    PULSE_SILENT = "pulse-silent"
    LEASE_GONE = "lease-gone"


PULSE_ENDS = frozenset({How.PULSE_CLOSED, How.PULSE_SILENT})


@dataclass(frozen=True, slots=True)
class Standing:
    place: Place
    own: CandidateEntry | None
    leader: CandidateEntry | None


def front(candidates: Sequence[CandidateEntry]) -> CandidateEntry | None:
    return min(candidates, key=lambda entry: entry.create_revision, default=None)


def standing(candidates: Sequence[CandidateEntry], key: str, epoch: int) -> Standing:
    """Where the key that was created at `epoch` stands; one that was deleted and made again is another candidate."""
    leader = front(candidates)
    own = next((entry for entry in candidates if entry.key == key and entry.create_revision == epoch), None)
    if own is None:
        return Standing(Place.OUT, None, leader)
    return Standing(Place.FIRST if own is leader else Place.BEHIND, own, leader)


def acting_leader(candidates: Sequence[CandidateEntry], last_term: Term | None) -> CandidateEntry | None:
    """The first candidate, once its term record is there: before that it is no leader for anybody."""
    leader = front(candidates)
    if leader is None or last_term is None or last_term.epoch != leader.create_revision:
        return None
    return leader


def noted(candidates: Sequence[CandidateEntry], epoch: int) -> TermEnd | None:
    """How that epoch ended, as the candidate that ended it wrote into its own key."""
    ends = (entry.candidate.ended for entry in candidates)
    return next((end for end in ends if end is not None and end.epoch == epoch), None)


def term_end(last_term: Term | None, known: TermEnd | None) -> TermEnd:
    """How the last recorded term ended; without anybody's word its lease just went."""
    if last_term is None:
        return TermEnd(epoch=0, how=How.FIRST)
    if known is not None and known.epoch == last_term.epoch:
        return known
    return TermEnd(epoch=last_term.epoch, how=How.LEASE_GONE, incarnation=last_term.incarnation)
