"""Waiting for one's turn: behind a living leader, with a hand on its pulse.

Returns when the own key is first. Until then the current leader's pulse is followed, and a leader that is judged gone
has its term ended, unless pulses were wrong lately.
"""

from __future__ import annotations

import asyncio

import structlog

from controlplane.aio.clock import Clock
from controlplane.election.candidacy import Seat, end_term, revoke
from controlplane.election.listener import Listener
from controlplane.election.race import cancel
from controlplane.election.settings import ElectionSettings
from controlplane.election.standing import PULSE_ENDS, Place, Standing, noted, standing, term_end
from controlplane.election.trust import Trust
from controlplane.election.view import CandidateEntry, View
from controlplane.model.errors import Deposed
from controlplane.model.leadership import TermEnd
from controlplane.store.kv import Store

log = structlog.get_logger()

# A good-bye is on its way before the leader's key goes; this much later both have been read.
_GOODBYE_SECONDS = 0.005


class Pursuit:
    """One candidate's wait. `close` must be awaited when it is over.

    Leases of dead leaders are revoked behind the candidate's back, in tasks that outlive it: nobody waits for them.
    """

    def __init__(
        self,
        store: Store,
        view: View,
        settings: ElectionSettings,
        clock: Clock,
        *,
        trust: Trust,
        revoking: set[asyncio.Task[bool]],
    ) -> None:
        self._store = store
        self._view = view
        self._settings = settings
        self._clock = clock
        self._trust = trust
        self._epoch = 0
        self._following: asyncio.Task[TermEnd] | None = None
        self._revoking = revoking

    async def turn(self, seat: Seat, incarnation: str) -> tuple[CandidateEntry, TermEnd]:
        """The own entry once it is first, and how the term before it ended. Deposed when the own key is gone."""
        while True:
            revision = self._view.revision()
            now = standing(self._view.candidates(), seat.key, seat.epoch)
            if now.own is None or now.leader is None:
                raise Deposed("the candidate key is gone")
            if now.place is Place.FIRST:
                return now.own, await self._how_it_ended()
            self._follow(now.leader, incarnation)
            await self._next(now, revision)

    async def close(self) -> None:
        if self._following is not None:
            await cancel(self._following)

    def _follow(self, leader: CandidateEntry, incarnation: str) -> None:
        if self._following is not None and self._epoch == leader.create_revision:
            return
        if self._following is not None:
            self._following.cancel()
        listener = Listener(self._settings, incarnation, leader)
        self._epoch = leader.create_revision
        self._following = asyncio.create_task(listener.follow())

    async def _next(self, now: Standing, revision: int) -> None:
        """Until the queue changed, or the leader was judged gone and that was acted on."""
        assert self._following is not None
        changed = asyncio.create_task(self._view.changed(revision))
        try:
            await asyncio.wait({changed, self._following}, return_when=asyncio.FIRST_COMPLETED)
            if changed.done() or not await self._conclude(now, self._following.result()):
                return
            # The view shows what came of it; without an answer of etcd it is tried again.
            await asyncio.wait({changed}, timeout=self._settings.patience_seconds)
        finally:
            await cancel(changed)

    async def _conclude(self, now: Standing, end: TermEnd) -> bool:
        """False when the verdict is not acted on: the leader is then followed as if it had never been reached."""
        assert now.own is not None
        assert now.leader is not None
        self._trust.observe(self._view.candidates(), self._view.last_term(), self._clock.monotonic())
        if end.how in PULSE_ENDS and not self._trust.given(self._clock.monotonic()):
            self._following = None
            return False
        log.info("ending the term of a leader that is gone", epoch=end.epoch, how=end.how)
        patience = self._settings.patience_seconds
        if await end_term(self._store, now.own, now.leader, end, patience_seconds=patience):
            task = asyncio.create_task(revoke(self._store, now.leader.lease))
            self._revoking.add(task)
            task.add_done_callback(self._revoking.discard)
        return True

    async def _how_it_ended(self) -> TermEnd:
        last = self._view.last_term()
        note = noted(self._view.candidates(), last.epoch) if last is not None else None
        following = self._following
        if last is not None and note is None and following is not None and self._epoch == last.epoch:
            await asyncio.wait({following}, timeout=_GOODBYE_SECONDS)
            note = following.result() if following.done() else None
        return term_end(last, note)
