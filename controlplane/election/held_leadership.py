"""Leadership: a term as seen by the code that leads, with its fence, its deadline and its end.

Every write of a leader goes through `commit`, or carries `fence` and treats a refusal as `commit` does. The fence
changes when the leader proclaims: after a write with an unknown outcome the leader rewrites its own key, which makes
etcd refuse the write should the write still arrive. The leader then waits until its own watch delivered the rewrite,
and goes on in the same term with a view that shows all applied writes. This module neither renews the lease nor decides
which candidate leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from controlplane.aio.clock import Clock
from controlplane.election.election_settings import ElectionSettings
from controlplane.election.race import or_deposed
from controlplane.election.view import CandidateEntry, View
from controlplane.model import errors
from controlplane.model.leadership import Candidate
from controlplane.store import codec
from controlplane.store.kv import Store
from controlplane.store.transaction import Fence, Item, Outcome, get, mod_is, put

T = TypeVar("T")

_RETRY_SECONDS = 0.05


class Leadership:
    def __init__(
        self,
        store: Store,
        view: View,
        clock: Clock,
        own: CandidateEntry,
        *,
        deadline: Callable[[], float],
        settings: ElectionSettings,
    ) -> None:
        self._store = store
        self._view = view
        self._clock = clock
        self._own = own
        self._deadline = deadline
        self._patience_seconds = settings.patience_seconds
        self._blind_seconds = settings.ttl_seconds
        self._fence = Fence(own.key, own.create_revision, own.mod_revision)
        self._candidate = own.candidate
        self._proclaiming = asyncio.Lock()
        self._settled = asyncio.Event()
        self._settled.set()
        self.lost = asyncio.Event()
        self.over = asyncio.Event()
        self.why = ""

    @property
    def fence(self) -> Fence:
        return self._fence

    @property
    def epoch(self) -> int:
        return self._own.create_revision

    @property
    def key(self) -> str:
        return self._own.key

    @property
    def candidate(self) -> Candidate:
        return self._candidate

    def deadline(self) -> float:
        """Monotonic time until which the lease certainly lives, counted from the sending of its last renewal."""
        return self._deadline()

    def demote(self, why: str) -> None:
        """Ends the term; the first reason stays. May be called by any code that has proof of the term's end."""
        if not self.lost.is_set():
            self.why = why
            self.lost.set()

    async def step_down(self) -> None:
        """Returns when the lease is revoked and the term's work has ended."""
        self.demote("stepped-down")
        await self.over.wait()

    def check(self) -> None:
        """Deposed when the term is over, or when its lease may have ended."""
        if self.lost.is_set():
            raise errors.Deposed(f"epoch {self.epoch} is over: {self.why}")
        if self._clock.monotonic() >= self._deadline():
            self.demote("deadline")
            raise errors.Deposed(f"epoch {self.epoch} is over: its lease was not renewed in time")

    async def commit(self, items: Sequence[Item]) -> list[Outcome]:
        """Commits the items in a single fenced transaction, answered by the lease's deadline at the latest.

        Unavailable: certainly not applied, also when a proclamation of the leader overtook the write. OutcomeUnknown:
        the leader has proclaimed meanwhile, so the state that the view shows now is final. Deposed: the term is over.
        Do not cancel a commit: a cancelled commit leaves an unknown outcome behind without a proclamation.
        """
        await self._settled.wait()
        self.check()
        fence = self._fence
        left = max(self._deadline() - self._clock.monotonic(), _RETRY_SECONDS)
        try:
            return await self._store.commit_group(items, fence=fence, timeout=left)
        except errors.Deposed:
            await self.refused(fence)
            raise
        except errors.OutcomeUnknown:
            await self.proclaim(fence)
            raise

    async def refused(self, used: Fence) -> None:
        """Handles a write whose fence `used` etcd refused: Unavailable when only the fence was old, else Deposed."""
        await self._settled.wait()
        if used != self._fence and not self.lost.is_set():
            raise errors.Unavailable(f"epoch {self.epoch} proclaimed itself anew before the write came")
        self.demote("deposed")
        raise errors.Deposed(f"epoch {self.epoch} no longer leads: etcd refused its write")

    async def proclaim(self, used: Fence | None = None) -> None:
        """Changes the fence so that no write with an older fence can apply; does nothing when `used` is already older.

        Deposed when the key no longer belongs to the leader. A proclamation cancelled half-way may cost the term.
        """
        async with self._proclaiming:
            if used is not None and used != self._fence:
                return
            self.check()
            self._settled.clear()
            try:
                await self.unless_lost(self._rewrite())
            finally:
                self._settled.set()

    async def seen(self, revision: int) -> None:
        """Returns when the own view shows the revision. Deposed when the view does not for the life of a lease."""
        try:
            async with asyncio.timeout(self._blind_seconds):
                await self._view.reached(revision)
        except TimeoutError:
            self.demote("blind")
            raise errors.Deposed(f"epoch {self.epoch} is over: its view does not show revision {revision}") from None

    async def unless_lost(self, work: Coroutine[Any, Any, T]) -> T:
        return await or_deposed(self.lost.wait(), work)

    async def _rewrite(self) -> None:
        """Repeats the same rewrite until etcd confirms a success; all tries compare one revision, so only one applies.

        The put is nested, so that an etcd without space accepts the rewrite too. A leader that cannot proclaim within
        the life of a lease is deposed: no write is possible meanwhile, and another replica may have more success.
        """
        changed = msgspec.structs.replace(self._candidate, proclaimed=self._candidate.proclaimed + 1)
        value = codec.encode(changed)
        operation = put(self.key, value, lease=self._own.lease)
        item = Item((mod_is(self.key, self._fence.mod_revision),), (operation,), (get(self.key),))
        until = self._clock.monotonic() + self._blind_seconds
        while True:
            self.check()
            if self._clock.monotonic() >= until:
                self.demote("unproclaimed")
                raise errors.Deposed(f"epoch {self.epoch} is over: it could not proclaim itself in a lease's life")
            left = max(self._deadline() - self._clock.monotonic(), _RETRY_SECONDS)
            try:
                (outcome,) = await self._store.commit_group([item], timeout=min(self._patience_seconds, left))
                break
            except (errors.Unavailable, errors.OutcomeUnknown):
                await self._clock.sleep(_RETRY_SECONDS)
            except errors.NotFound:
                self._fail("its lease is gone")
        revision = outcome.revision
        if not outcome.succeeded:
            stored = outcome.found[0] if outcome.found else None
            if stored is None or stored.create_revision != self.epoch or stored.value != value:
                self._fail("its key is another's")
            else:
                revision = stored.mod_revision
        await self.seen(revision)
        self._candidate = changed
        self._fence = Fence(self.key, self.epoch, revision)

    def _fail(self, why: str) -> None:
        self.demote("deposed")
        raise errors.Deposed(f"epoch {self.epoch} cannot proclaim itself: {why}")
