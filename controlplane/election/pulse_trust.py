"""Trust in pulses: pulses may end a term, but not for a while after a pulse ended a term wrongly.

A pulse was wrong when the process whose term ended campaigns again. Every replica detects a wrong end from the note in
the key of the candidate that ended the term, and from the term record with the same note. So all replicas stop
trusting pulses at about the same time, without talking to each other. Pure: the time is passed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from controlplane.election.queue_position import PULSE_ENDS
from controlplane.election.view import CandidateEntry
from controlplane.model.leadership import Term, TermEnd


class PulseTrust:
    def __init__(self, off_seconds: float) -> None:
        self._off_seconds = off_seconds
        self._off_until = float("-inf")
        self._newest_wrong = 0

    def observe(self, candidates: Sequence[CandidateEntry], last_term: Term | None, now: float) -> bool:
        """True when the candidates or the last term show a wrong end that was not observed before."""
        wrong = [end.epoch for end in wrong_ends(candidates, last_term) if end.epoch > self._newest_wrong]
        if not wrong:
            return False
        self._newest_wrong = max(wrong)
        self._off_until = now + self._off_seconds
        return True

    def given(self, now: float) -> bool:
        return now >= self._off_until


def wrong_ends(candidates: Sequence[CandidateEntry], last_term: Term | None) -> Iterator[TermEnd]:
    notes = [entry.candidate.ended for entry in candidates]
    if last_term is not None:
        notes.append(last_term.ended)
    for end in notes:
        if end is None or end.how not in PULSE_ENDS or not end.incarnation:
            continue
        if any(e.candidate.incarnation == end.incarnation and e.create_revision > end.epoch for e in candidates):
            yield end
