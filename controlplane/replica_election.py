"""The election as the other parts of a replica know it: its view of etcd, and its place in the apiserver's ports."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from controlplane.cache.reflector import Cache, Delta
from controlplane.election.election import Election
from controlplane.election.view import CandidateEntry
from controlplane.model.errors import Refused, Unavailable
from controlplane.model.leadership import Term
from controlplane.store import keys

_AGAIN_SECONDS = 0.2


class ElectionView:
    """The election's view of etcd, read from the cache."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._changed_at = 0
        self._waiting: set[asyncio.Future[int]] = set()
        cache.subscribe(self._hear)

    def _hear(self, deltas: Sequence[Delta], revision: int) -> None:
        if not any(delta.tree in (keys.CANDIDATES, keys.TERMS) for delta in deltas):
            return
        self._changed_at = revision
        for future in self._waiting:
            if not future.done():
                future.set_result(revision)
        self._waiting.clear()

    def revision(self) -> int:
        return self._cache.revision

    def candidates(self) -> Sequence[CandidateEntry]:
        entries = []
        for entry in self._cache.snapshot.all(keys.CANDIDATES):
            candidate, stored = entry.readable(), entry.stored
            # A key without a lease, or with another lease than its name says, is renewed by no replica: it would stay
            # in the queue for ever.
            if candidate is not None and stored.lease and stored.key == keys.candidate(stored.lease):
                entries.append(
                    CandidateEntry(stored.key, candidate, stored.create_revision, stored.mod_revision, stored.lease)
                )
        return sorted(entries, key=lambda entry: entry.create_revision)

    def last_term(self) -> Term | None:
        """The newest sane record whose epoch is before its own create revision; all other values are no terms."""
        snapshot = self._cache.snapshot
        for name in sorted(snapshot.names(keys.TERMS), reverse=True):
            entry = snapshot.get(keys.TERMS, name)
            term = entry.readable() if entry is not None else None
            if term is not None and entry is not None and term.epoch < entry.stored.create_revision:
                return term
        return None

    async def reached(self, revision: int) -> None:
        """Waits without a time-out, also while the cache is stale: the election brings its own time-out."""
        while True:
            with suppress(Unavailable):
                return await self._cache.reached(revision, None)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def changed(self, after_revision: int) -> int:
        if self._changed_at > after_revision:
            return self._cache.revision
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            return await future
        finally:
            self._waiting.discard(future)


class LateElection:
    """The election as the apiserver knows it, set later: a candidate needs the address of a server that already serves.

    Before the election is set, no leader is known, no clock is off, and a step-down is refused.
    """

    def __init__(self) -> None:
        self.election: Election | None = None

    def leader(self) -> Term | None:
        return self.election.leader() if self.election is not None else None

    def clocks_off(self) -> Mapping[str, float]:
        return self.election.clocks_off() if self.election is not None else {}

    async def step_down(self) -> int:
        if self.election is None:
            raise Refused("this replica does not lead")
        return await self.election.step_down()
