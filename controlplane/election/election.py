"""The election of a replica: campaign, lead, step down, campaign again, for ever.

A candidacy is a lease, a thread that keeps the lease, and a key. A term is a task that runs the caller's work. The task
is cancelled when the term is over and has ended before the next candidacy begins, so a process never works for two
terms. Stepping down says good-bye and revokes the lease before the work has ended: the fence makes early revocation
safe, and the next leader does not wait for the tasks of the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import structlog

from controlplane.aio.clock import Clock
from controlplane.election import candidacy, terms
from controlplane.election.clock_skew import ClockSkew
from controlplane.election.election_settings import ElectionSettings
from controlplane.election.held_leadership import Leadership
from controlplane.election.keeper import LeaseKeeper
from controlplane.election.listener import Listener
from controlplane.election.pulse import PulseServer
from controlplane.election.pulse_proof import PulseProver
from controlplane.election.pulse_trust import PulseTrust
from controlplane.election.queue_position import acting_leader
from controlplane.election.race import cancel, or_deposed
from controlplane.election.standby import Standby
from controlplane.election.term_guard import key_gone, watch_over
from controlplane.election.view import CandidateEntry, View
from controlplane.model.errors import Deposed, Refused
from controlplane.model.leadership import Candidate, Term, TermEnd
from controlplane.store.kv import Store

log = structlog.get_logger(__name__)

Lead = Callable[[Leadership], Awaitable[None]]

_STOP_SECONDS = 2.0
# The pause after a term whose work ended by itself: the work would most likely end again, while another replica may
# lead with more success.
_AGAIN_SECONDS = 0.5
_GOODBYE_SECONDS = 0.05
# Ends of a term at which the leader's key still exists.
_WILLING = frozenset({"stepped-down", "cancelled", "finished"})


class Election:
    """With a prover, the pulse and its followers prove themselves with the cluster key, and the candidate says so."""

    def __init__(
        self,
        store: Store,
        view: View,
        settings: ElectionSettings,
        candidate: Candidate,
        clock: Clock,
        *,
        prover: PulseProver | None = None,
    ) -> None:
        self._store = store
        self._view = view
        self._settings = settings
        self._candidate = msgspec.structs.replace(candidate, proves=prover is not None)
        self._clock = clock
        self._trust = PulseTrust(settings.pulse_off_seconds)
        self._ticks = 0
        self._held: set[int] = set()
        self._left_over: set[int] = set()
        self._revoking: set[asyncio.Task[bool]] = set()
        self._leadership: Leadership | None = None
        self._pulse: PulseServer | None = None
        self._prover = prover
        self._clock_skew = ClockSkew(view, candidate, clock, prover=prover)

    def clocks_off(self) -> Mapping[str, float]:
        """Replicas whose wall clock is off, with the difference in seconds, as read by this replica."""
        return self._clock_skew.off

    def leader(self) -> Term | None:
        """The term under way according to the replica's view; None while no replica leads."""
        last = self._view.last_term()
        return last if acting_leader(self._view.candidates(), last) is not None else None

    @property
    def leadership(self) -> Leadership | None:
        """The own term; None while this replica does not lead."""
        return self._leadership

    def followers(self) -> int:
        """How many replicas follow the own pulse; without followers only the lease can end the own term."""
        return self._pulse.followers() if self._pulse is not None else 0

    async def step_down(self) -> int:
        """Ends the own term and returns its epoch; Refused when this replica does not lead."""
        leadership = self._leadership
        if leadership is None:
            raise Refused("this replica does not lead")
        await leadership.step_down()
        return leadership.epoch

    async def run(self, lead: Lead) -> None:
        """Campaigns and leads for ever. Cancelled, the election steps down and cleans up, in bounded time."""
        incarnation = self._candidate.incarnation
        self._pulse = pulse = PulseServer(self._settings, incarnation, self._clock, prover=self._prover)
        self._candidate = msgspec.structs.replace(self._candidate, pulse=pulse.address)
        pulse.start()
        work = (self._tick(), self._watch_trust(), self._clock_skew.run())
        helpers = [asyncio.create_task(coroutine) for coroutine in work]
        try:
            while True:
                for helper in helpers:
                    if helper.done():
                        helper.result()
                await self._stand(lead)
        finally:
            for task in (*helpers, *self._revoking):
                await cancel(task)
            pulse.stop(timeout=_STOP_SECONDS)

    async def _tick(self) -> None:
        """Counts ticks of the event loop: the sign of life on which the lease depends."""
        while True:
            await self._clock.sleep(self._settings.tick_seconds)
            self._ticks += 1

    async def _watch_trust(self) -> None:
        while True:
            now = self._clock.monotonic()
            candidates = self._view.candidates()
            if self._pulse is not None:
                self._pulse.expect(entry.candidate.incarnation for entry in candidates)
            if self._trust.observe(candidates, self._view.last_term(), now):
                log.warning(
                    "a pulse ended the term of a living leader: pulses end no terms for a while",
                    seconds=self._settings.pulse_off_seconds,
                )
            await self._view.changed(self._view.revision())

    def _say_goodbye(self) -> int:
        """Returns how many followers received the good-bye; may be called from any thread."""
        leadership, pulse = self._leadership, self._pulse
        return pulse.leave(leadership.epoch) if leadership is not None and pulse is not None else 0

    async def _stand(self, lead: Lead) -> None:
        """Runs a candidacy, from the grant of its lease to the end of its term."""
        keeper = LeaseKeeper(
            self._store.channels.options,
            self._settings,
            self._clock,
            loop_ticks=lambda: self._ticks,
            on_silent_loop=self._say_goodbye,
        )
        keeper.start()
        lease = 0
        try:
            lease = await or_deposed(keeper.lost, _result(keeper.granted))
            self._held.add(lease)
            await self._clear_left_over()
            own, ended = await or_deposed(keeper.lost, self._win(lease))
            await self._reign(own, ended, keeper, lead)
        except Deposed as deposed:
            log.info("candidacy over", reason=str(deposed))
        finally:
            keeper.stop()
            await self._give_back(lease)
            await keeper.stopped(_STOP_SECONDS)

    async def _give_back(self, lease: int) -> None:
        """Revokes the own lease, once; without an answer of etcd the next candidacy tries to revoke the lease again."""
        if lease not in self._held:
            return
        self._held.remove(lease)
        if not await candidacy.revoke(self._store, lease):
            self._left_over.add(lease)

    async def _clear_left_over(self) -> None:
        """Revokes leases of earlier candidacies, whose keys would queue before the new key until their leases end."""
        for lease in tuple(self._left_over):
            if not await candidacy.revoke(self._store, lease):
                return
            self._left_over.discard(lease)

    async def _win(self, lease: int) -> tuple[CandidateEntry, TermEnd]:
        patience = self._settings.patience_seconds
        seat = await candidacy.enter(self._store, self._candidate, lease, self._clock, patience_seconds=patience)
        try:
            async with asyncio.timeout(self._settings.ttl_seconds):
                await self._view.reached(seat.epoch)
        except TimeoutError:
            # A candidate that cannot see its own place in the queue would hold up all candidates behind it.
            raise Deposed("the view does not show the own candidate key") from None
        standby = Standby(
            self._store, self._view, self._settings, self._clock, trust=self._trust, revoking=self._revoking
        )
        try:
            return await standby.turn(seat, self._listen)
        finally:
            await standby.close()

    def _listen(self, ahead: CandidateEntry) -> Listener:
        return Listener(self._settings, self._candidate.incarnation, ahead, prover=self._prover)

    async def _reign(self, own: CandidateEntry, ended: TermEnd, keeper: LeaseKeeper, lead: Lead) -> None:
        leadership = Leadership(
            self._store,
            self._view,
            self._clock,
            own,
            deadline=keeper.deadline,
            settings=self._settings,
        )
        self._leadership = leadership
        assert self._pulse is not None
        self._pulse.lead(leadership.epoch)
        work = asyncio.create_task(self._term(leadership, ended, lead))
        guard = asyncio.create_task(watch_over(leadership, keeper, self._view, self._clock))
        stop_seconds: float | None = _STOP_SECONDS
        try:
            await asyncio.wait({work, guard}, return_when=asyncio.FIRST_COMPLETED)
            if guard.done():
                guard.result()
            # The next candidacy must wait for the term's work, however long; a cancelled election waits a bounded time.
            stop_seconds = None
        finally:
            leadership.demote("finished" if work.done() else "cancelled")
            keeper.stop()
            await cancel(guard)
            await self._hand_over(leadership, work, own.lease, stop_seconds)
        if leadership.why == "finished":
            await self._clock.sleep(_AGAIN_SECONDS)

    async def _hand_over(
        self, leadership: Leadership, work: asyncio.Task[None], lease: int, stop_seconds: float | None
    ) -> None:
        work.cancel()
        if self._say_goodbye() and leadership.why in _WILLING:
            # A standby that received the good-bye ends the term at once and notes the end. Revoking the lease ends the
            # term when no standby did.
            gone = asyncio.create_task(key_gone(leadership, self._view))
            await asyncio.wait({gone}, timeout=_GOODBYE_SECONDS)
            await cancel(gone)
        await self._give_back(lease)
        await asyncio.wait({work}, timeout=stop_seconds)
        self._leadership = None
        leadership.over.set()
        _report(leadership, work)

    async def _term(self, leadership: Leadership, ended: TermEnd, lead: Lead) -> None:
        """Writes the record of the term first; the caller's work begins when the own view shows the record."""
        revision = await terms.record(leadership, ended, self._clock)
        await leadership.seen(revision)
        log.info("leading", epoch=leadership.epoch, before=ended.how)
        await lead(leadership)


async def _result(future: asyncio.Future[int]) -> int:
    return await asyncio.shield(future)


def _report(leadership: Leadership, work: asyncio.Task[None]) -> None:
    error = work.exception() if work.done() and not work.cancelled() else None
    if error is None or isinstance(error, Deposed):
        log.info("term over", epoch=leadership.epoch, reason=leadership.why)
    else:
        log.error("term ended by an error", epoch=leadership.epoch, exc_info=error)
