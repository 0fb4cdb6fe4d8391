"""The view of etcd that an election reads. The composition root implements the view on the cache of the replica."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from controlplane.model.leadership import Candidate, Term


@dataclass(frozen=True, slots=True)
class CandidateEntry:
    """A key below `election/`. The create revision is its place in the queue, and its epoch as a leader."""

    key: str
    candidate: Candidate
    create_revision: int
    mod_revision: int
    lease: int


class View(Protocol):
    """Candidates and terms at a single revision; all changes of a revision become visible together."""

    def revision(self) -> int: ...

    def candidates(self) -> Sequence[CandidateEntry]:
        """Sorted by create revision. Keys whose value is no Candidate are left out, by every replica alike."""
        ...

    def last_term(self) -> Term | None: ...

    async def reached(self, revision: int) -> None:
        """Returns once all changes up to the revision are visible."""
        ...

    async def changed(self, after_revision: int) -> int:
        """Returns the view's revision once a candidate or a term changed after the given revision."""
        ...
