"""What an election sees of etcd, through somebody else's watch. The composition root implements it on the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from controlplane.model.leadership import Candidate, Term


@dataclass(frozen=True, slots=True)
class CandidateEntry:
    """One key below `election/`. Its create revision is its place in the queue, and the epoch once it leads."""

    key: str
    candidate: Candidate
    create_revision: int
    mod_revision: int
    lease: int


class View(Protocol):
    """Everything at one revision; what changed in one revision becomes visible together."""

    def revision(self) -> int: ...

    def candidates(self) -> Sequence[CandidateEntry]:
        """Sorted by create revision. Keys whose value is no Candidate are left out, by every replica alike."""
        ...

    def last_term(self) -> Term | None: ...

    async def reached(self, revision: int) -> None:
        """Returns once everything up to that revision is visible."""
        ...

    async def changed(self, after_revision: int) -> int:
        """Returns the view's revision once a key below `election/` changed after the given one."""
        ...
