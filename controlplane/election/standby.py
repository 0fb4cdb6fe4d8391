"""A standby: a candidate that waits for its turn to lead and follows the pulses of all candidates ahead in the queue.

The wait ends when the own key is first. Pulses are followed early, so that the connection to the next leader is up
before that candidate leads. When a leader is judged gone, the standby ends its term; when a standby ahead is judged
gone, its key is removed from the queue, so that no dead candidate comes to lead. Neither happens while pulses are not
trusted. A verdict reached while its subject was a standby does not end its later term as leader (and vice versa), so
a cut of all pulses at once costs a single change of leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from controlplane.aio.clock import Clock
from controlplane.election.candidacy import Seat, end_term, remove, revoke
from controlplane.election.election_settings import ElectionSettings
from controlplane.election.listener import Listener
from controlplane.election.pulse_trust import PulseTrust
from controlplane.election.queue_position import PULSE_ENDS, Place, QueuePosition, noted, queue_position, term_end
from controlplane.election.race import cancel
from controlplane.election.verdict import PulseState
from controlplane.election.view import CandidateEntry, View
from controlplane.model.errors import Deposed
from controlplane.model.leadership import TermEnd
from controlplane.store.kv import Store

log = structlog.get_logger(__name__)

Listen = Callable[[CandidateEntry], Listener]

# A leader sends its good-bye before its key is deleted; after this time a standby has read both.
_GOODBYE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class _Following:
    entry: CandidateEntry
    listener: Listener
    verdict: asyncio.Task[TermEnd]

    def up(self) -> bool:
        return self.listener.state is PulseState.UP


class Standby:
    """The wait of a single candidate. `close` must be awaited after the wait.

    Leases of dead candidates are revoked by tasks in `revoking`, which outlive the wait and are not waited for.
    """

    def __init__(
        self,
        store: Store,
        view: View,
        settings: ElectionSettings,
        clock: Clock,
        *,
        trust: PulseTrust,
        revoking: set[asyncio.Task[bool]],
    ) -> None:
        self._store = store
        self._view = view
        self._settings = settings
        self._clock = clock
        self._trust = trust
        self._leader_epoch = 0
        self._following: dict[int, _Following] = {}
        self._ends: dict[int, TermEnd] = {}
        self._revoking = revoking

    async def turn(self, seat: Seat, listen: Listen) -> tuple[CandidateEntry, TermEnd]:
        """The own entry once its key is first, and how the term before ended. Deposed when the own key is gone.

        `listen` makes the listener that follows a candidate ahead.
        """
        while True:
            revision = self._view.revision()
            now = queue_position(self._view.candidates(), seat.key, seat.epoch)
            if now.own is None or now.leader is None:
                raise Deposed("the candidate key is gone")
            if now.place is Place.FIRST:
                return now.own, await self._how_it_ended()
            self._follow(self._view.candidates(), now, listen)
            await self._next(now, revision)

    async def close(self) -> None:
        for following in self._following.values():
            await cancel(following.verdict)

    def _follow(self, candidates: Sequence[CandidateEntry], now: QueuePosition, listen: Listen) -> None:
        assert now.own is not None
        assert now.leader is not None
        ahead = {e.create_revision: e for e in candidates if e.create_revision < now.own.create_revision}
        leader = now.leader.create_revision
        left = self._following.keys() - ahead.keys()
        if leader != self._leader_epoch and leader in self._following and not self._following[leader].up():
            left.add(leader)
        for epoch in left:
            self._following.pop(epoch).verdict.cancel()
        for epoch, entry in ahead.items():
            if epoch not in self._following:
                listener = listen(entry)
                self._following[epoch] = _Following(entry, listener, asyncio.create_task(listener.follow()))
        self._leader_epoch = leader

    async def _next(self, now: QueuePosition, revision: int) -> None:
        """Waits until the queue changed, or until a candidate ahead was judged gone and removed."""
        changed = asyncio.create_task(self._view.changed(revision))
        verdicts = {following.verdict for following in self._following.values()}
        try:
            await asyncio.wait({changed, *verdicts}, return_when=asyncio.FIRST_COMPLETED)
            leader = self._following[self._leader_epoch]
            if leader.verdict.done():
                self._ends[self._leader_epoch] = leader.verdict.result()
            if changed.done() or not await self._conclude(now):
                return
            # The view shows the result; without an answer of etcd the next round tries again.
            await asyncio.wait({changed}, timeout=self._settings.patience_seconds)
        finally:
            await cancel(changed)

    async def _conclude(self, now: QueuePosition) -> bool:
        """Acts on the verdicts; returns whether the term of the leader was ended, so that the queue will change.

        A candidate whose verdict is not acted on is followed anew, as if never reached.
        """
        self._trust.observe(self._view.candidates(), self._view.last_term(), self._clock.monotonic())
        judged = [following for following in self._following.values() if following.verdict.done()]
        expected = False
        for following in judged:
            end = following.verdict.result()
            if end.how in PULSE_ENDS and not self._trust.given(self._clock.monotonic()):
                del self._following[end.epoch]
                self._ends.pop(end.epoch, None)
            elif end.epoch == self._leader_epoch:
                await self._end_term(now, end)
                expected = True
            else:
                del self._following[end.epoch]
                await self._remove(now, following.entry)
        return expected

    async def _end_term(self, now: QueuePosition, end: TermEnd) -> None:
        assert now.own is not None
        assert now.leader is not None
        log.info("ending the term of a leader that is gone", epoch=end.epoch, how=end.how)
        patience = self._settings.patience_seconds
        if await end_term(self._store, now.own, now.leader, end, patience_seconds=patience):
            self._revoke(now.leader.lease)

    async def _remove(self, now: QueuePosition, dead: CandidateEntry) -> None:
        assert now.own is not None
        assert now.leader is not None
        log.info("taking a standby that is gone out of the queue", candidate=dead.candidate.id)
        patience = self._settings.patience_seconds
        if await remove(self._store, now.own, now.leader, dead, patience_seconds=patience):
            self._revoke(dead.lease)

    def _revoke(self, lease: int) -> None:
        task = asyncio.create_task(revoke(self._store, lease))
        self._revoking.add(task)
        task.add_done_callback(self._revoking.discard)

    async def _how_it_ended(self) -> TermEnd:
        last = self._view.last_term()
        if last is None:
            return term_end(None, None)
        note = noted(self._view.candidates(), last.epoch) or self._ends.get(last.epoch)
        following = self._following.get(last.epoch)
        if note is None and following is not None:
            await asyncio.wait({following.verdict}, timeout=_GOODBYE_SECONDS)
            note = following.verdict.result() if following.verdict.done() else None
        return term_end(last, note)
