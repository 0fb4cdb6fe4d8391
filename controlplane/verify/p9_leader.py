"""P9: a leader exists again after each fault: a replica leads now, and terms follow each other without a gap.

Epochs increase, and every term but the first names the end of the term before. The time without a leader cannot be
computed from time stamps of several machines; the drill measures it. Leaders that follow each other too fast are
checked in `p9_terms`, orders that make no progress in `p9_orders`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from controlplane.model import times
from controlplane.model.errors import Invalid
from controlplane.model.leadership import Candidate, Term
from controlplane.replica_settings import DEFAULT_TTL
from controlplane.store import keys
from controlplane.verify.history import KeyChange
from controlplane.verify.p9_terms import Recorded, rushes
from controlplane.verify.promise_verdicts import PromiseVerdict, Tally

FIRST = "first"
_HEX = re.compile("[0-9a-f]{1,16}")


class LeaderCheck:
    """Follows candidates and the records of terms."""

    def __init__(self) -> None:
        self.tally = Tally("P9", "no term is on record")
        self._candidates: dict[str, int] = {}
        self._terms: dict[int, Term] = {}
        self._recorded: list[Recorded] = []
        self._last: int | None = None
        self._revision = 0

    def start(self, state: Sequence[KeyChange]) -> None:
        for event in state:
            self._stand(event)
            if isinstance(event.object, Term):
                self._append(event, event.object)

    def change(self, revision: int, changes: Sequence[KeyChange]) -> None:
        self._revision = revision
        for event in changes:
            self._stand(event)
            if isinstance(event.object, Term) and not self._repeated(event, event.object):
                self._append(event, event.object)

    @property
    def stands(self) -> bool:
        """Whether there is a candidate."""
        return bool(self._candidates)

    @property
    def leads(self) -> bool:
        """Whether the term of the first candidate is on record."""
        return min(self._candidates.values(), default=0) in self._terms

    @property
    def leases(self) -> list[int]:
        """The leases of the candidates, from the names of their keys."""
        names = [key.removeprefix(keys.CANDIDATES.prefix) for key in self._candidates]
        return [int(name, 16) for name in names if _HEX.fullmatch(name)]

    def verdict(self, *, expected: bool = True, ttl_seconds: float = DEFAULT_TTL) -> PromiseVerdict:
        """`expected`: replicas are known to run, so a leader is due."""
        for rush in rushes(self._recorded, ttl_seconds):
            self.tally.broken(rush.last.key, rush.last.revision, rush.why)
        if not self.leads and not self.stands and not expected:
            self.tally.cannot_tell("no replica stands for election")
        elif not self.leads:
            first = min(self._candidates, key=lambda key: self._candidates[key], default=keys.CANDIDATES.prefix)
            self.tally.broken(first, self._revision, "nobody leads")
        return self.tally.verdict(self._gaps())

    def _stand(self, event: KeyChange) -> None:
        if event.tree != keys.CANDIDATES:
            return
        if isinstance(event.object, Candidate):
            self._candidates[event.key] = event.created
        else:
            self._candidates.pop(event.key, None)

    def _repeated(self, event: KeyChange, term: Term) -> bool:
        """Whether the term is on record already: a leader that lost the answer to its write repeats the record."""
        before = self._terms.get(term.epoch)
        if before is None:
            return False
        if msgspec.structs.replace(before, since=term.since) != term:
            self.tally.broken(event.key, event.revision, "was changed after it had been written")
        return True

    def _append(self, event: KeyChange, term: Term) -> None:
        self.tally.checked += 1
        last, self._last = self._last, max(term.epoch, self._last or 0)
        self._terms[term.epoch] = term
        self._recorded.append(Recorded(event.key, event.revision, term))
        if last is None:
            return
        if term.epoch <= last:
            self.tally.broken(event.key, event.revision, f"came after term {last}, but is older")
        elif term.ended is None or not term.ended.how or term.ended.how == FIRST:
            self.tally.broken(event.key, event.revision, f"does not say how term {last} ended")
        elif term.ended.epoch != last:
            why = f"says how term {term.ended.epoch} ended, but the one before was {last}"
            self.tally.broken(event.key, event.revision, why)

    def _gaps(self) -> str:
        stamps = []
        for term in self._terms.values():
            try:
                stamps.append(times.parse(term.since, "since"))
            except Invalid:
                continue
        gaps = [(after - before).total_seconds() for before, after in pairwise(stamps)]
        if not gaps:
            return ""
        return f"{len(stamps)} terms, begun {min(gaps):.3f} to {max(gaps):.3f} s after each other"
