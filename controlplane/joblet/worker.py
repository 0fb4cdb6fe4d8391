"""The worker of one target: makes the driver run the desired fulfilments, and reports what the driver sees.

Three kinds of events drive the worker: messages of the replica, notices of the driver, confirmed heartbeats. Each event
ends in `_touch` for the fulfilments concerned. Between the loss of a stream and the end of the full list that the next
stream begins with, the worker starts and reports nothing. The worker never awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from controlplane.aio.backoff import doubling
from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import Failpoints
from controlplane.joblet.driver import Driver
from controlplane.joblet.joblet_state import JobletState
from controlplane.joblet.reconcile import FulfilmentDecision, decide, may_still_appear
from controlplane.joblet.reporter import Chain, ReportOutcome, fit
from controlplane.joblet.stats import Machine, WorkCounter
from controlplane.model import times
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import Fulfilment, Observed
from controlplane.model.task import AttemptPhase
from controlplane.wire import payload
from controlplane.wire.v1 import joblets_pb2

# A report in JSON and the revision that it is based on.
Send = Callable[[bytes, int], None]

_REPORT_AGAIN = doubling(0.2, 5.0)
TROUBLE_SECONDS = 1.0
log = structlog.get_logger(__name__)


class DesiredFulfilment:
    """One desired fulfilment and its chain of reports."""

    __slots__ = ("chain", "fulfilment", "sent_at")

    def __init__(self, fulfilment: Fulfilment) -> None:
        self.fulfilment = fulfilment
        self.chain = Chain()
        self.sent_at = 0.0


class Worker:
    def __init__(
        self, target: str, driver: Driver, state: JobletState, *, clock: Clock, failpoints: Failpoints, machine: Machine
    ) -> None:
        self.target = target
        self._driver = driver
        self._state = state
        self._clock = clock
        self._failpoints = failpoints
        self._machine = machine
        self._work = WorkCounter(clock)
        self._entries: dict[str, DesiredFulfilment] = {}
        self._waiting: set[str] = set()
        # The fulfilments of the full list so far; None once the list was complete.
        self._listed: set[str] | None = None
        self._session = ""
        self._send: Send | None = None
        self._renew: Callable[[], None] = lambda: None
        self._attempt_floor = 0
        self._quiet: asyncio.Event | None = None
        self._hurry: Callable[[], None] = lambda: None
        self._reported_leftovers = 0
        self._hold_back_until = 0.0
        driver.attach(self._notice)

    def hold_back(self, seconds: float) -> None:
        """For so long an attempt that an earlier joblet elsewhere was about to start may still appear."""
        self._hold_back_until = self._clock.monotonic() + seconds

    # The stream

    def connected(self, session: str, send: Send, renew: Callable[[], None], hurry: Callable[[], None]) -> None:
        """A full list follows. `renew` gives up the session and connects anew, `hurry` sends a heartbeat at once."""
        self._state.remember(session)
        self._session = session
        self._listed = set()
        self._send = send
        self._renew = renew
        self._hurry = hurry
        for entry in self._entries.values():
            entry.chain.reconnected()

    def restored(self, restored: bool) -> None:
        """Whether the control plane came from a backup: attempts from before the restore are then not started again."""
        self._attempt_floor = self._state.known_attempt if restored else 0

    async def start_over(self) -> None:
        """Stops all work of the target; returns when no attempt is alive any more."""
        self._quiet = asyncio.Event()
        for identity in {*self._entries, *self._driver.fulfilments()}:
            self._drop(identity)
        while self._driver.busy():
            self._quiet.clear()
            await self._quiet.wait()
        self._quiet = None

    def disconnected(self) -> None:
        self._listed = set()
        self._send = None

    def assign(self, message: joblets_pb2.Assign) -> None:
        try:
            fulfilment = payload.fulfilment(message.fulfilment)
        except Invalid as error:
            log.error("an unreadable fulfilment is ignored", target=self.target, error=str(error))
            return
        entry = self._entries.get(fulfilment.id)
        if entry is None:
            entry = self._entries[fulfilment.id] = DesiredFulfilment(fulfilment)
        entry.fulfilment = fulfilment
        entry.chain.learn(_observed(message.observed), message.observed_revision)
        if self._listed is not None:
            self._listed.add(fulfilment.id)
        else:
            self._touch(fulfilment.id)

    def withdraw(self, identity: str) -> None:
        if self._listed is not None:
            self._listed.discard(identity)
        else:
            self._drop(identity)

    def sync(self) -> None:
        """The list is complete. Fulfilments that are missing there are stopped before any other is started."""
        listed, self._listed = self._listed or set(), None
        for identity in [*self._entries, *self._driver.fulfilments()]:
            if identity not in listed:
                self._drop(identity)
        for identity in list(self._entries):
            self._touch(identity)
        self._report_leftovers()

    def retire(self) -> None:
        """The target was deleted: no fulfilment is desired, and there is no replica to report to."""
        for identity in [*self._entries, *self._driver.fulfilments()]:
            self._drop(identity)

    def acknowledge(self, ack: joblets_pb2.ReportAck) -> None:
        entry = self._entries.get(ack.id)
        if entry is None:
            return
        outcome = entry.chain.acknowledge(ack.report, ack.code, _observed(ack.stored), ack.observed_revision)
        if outcome is ReportOutcome.GO_ON:
            self._touch(ack.id)
        elif outcome is ReportOutcome.GONE:
            self._drop(ack.id)
        elif outcome is ReportOutcome.STALE_SESSION:
            log.warning("the session is no longer valid", target=self.target, session=self._session)
            self._renew()
        elif outcome is ReportOutcome.AGAIN_LATER:
            log.info("a report was not stored", fulfilment=ack.id, code=ack.code, reason=ack.message)
            pause = _REPORT_AGAIN.after(entry.chain.failures)
            asyncio.get_running_loop().call_later(pause, self._touch, ack.id)

    def confirmed(self) -> None:
        """The session is confirmed for longer: fulfilments that waited for the confirmation may start."""
        self._touch_waiting()

    def overdue(self, before: float) -> bool:
        """Whether a report sent before that time still has no answer."""
        return any(entry.chain.outstanding is not None and entry.sent_at < before for entry in self._entries.values())

    def all_alive(self) -> int:
        """For the hello: before the list, every attempt that lives may be left over."""
        self._reported_leftovers = self._driver.running() + self._driver.dying()
        return self._reported_leftovers

    def leftovers(self) -> int | None:
        """How many attempts still die that are no longer desired; None before the comparison with the full list."""
        if self._listed is not None or self._send is None:
            return None
        self._reported_leftovers = self._driver.dying()
        return self._reported_leftovers

    def stats(self) -> dict[str, float]:
        now = {"desired": len(self._entries), "running": self._driver.running()}
        return {**now, **self._work.stats(), **self._machine.stats()}

    # The driver

    def _notice(self, identity: str) -> None:
        if self._quiet is not None:
            self._quiet.set()
        if identity not in self._entries and self._listed is None and self._send is not None:
            self._drop_at_driver(identity)  # an attempt appeared after the list, and is not desired
        self._touch(identity)
        self._touch_waiting()
        self._report_leftovers()

    # What follows

    def _report_leftovers(self) -> None:
        """Beats at once when the number changed: the target gets no work before its old work is dead."""
        before = self._reported_leftovers
        if self.leftovers() not in (None, before):
            self._hurry()

    def _touch(self, identity: str) -> None:
        """An OSError, such as a full disk, delays only this fulfilment: the others go on."""
        try:
            self._act(identity)
        except OSError as error:
            log.warning("a fulfilment is tried again later", fulfilment=identity, error=str(error))
            asyncio.get_running_loop().call_later(TROUBLE_SECONDS, self._touch, identity)

    def _act(self, identity: str) -> None:
        entry = self._entries.get(identity)
        if entry is None or self._listed is not None or self._send is None:
            return
        fulfilment, chain = entry.fulfilment, entry.chain
        self._driver.recall(fulfilment)
        if self._may_still_appear(fulfilment, chain):
            return
        decision = self._decide(fulfilment, chain)
        for task in decision.stop:
            self._driver.stop(identity, task, fulfilment.why_stop(task.job, task.index) or "")
        if decision.start and self._may_start(fulfilment):
            self._failpoints.reach("joblet.before-start")
            for task in decision.start:
                self._state.highest_attempt.reach(task.attempt)
                self._driver.start(fulfilment, task)
            decision = self._decide(fulfilment, chain)
        if decision.phase == AttemptPhase.RUNNING:
            self._failpoints.reach("joblet.after-start")
        if not chain.has_news(decision):
            return
        now = times.show(self._clock.wall())
        report = chain.next((identity, self.target, self._session), fit(decision), now)
        if report is not None:
            entry.sent_at = self._clock.monotonic()
            self._send(payload.encode(report), chain.base)

    def _may_still_appear(self, fulfilment: Fulfilment, chain: Chain) -> bool:
        """Whether an earlier joblet may still start the attempt; the fulfilment is touched again when none can."""
        left = self._hold_back_until - self._clock.monotonic()
        if left <= 0:
            return False
        seen = self._driver.seen(fulfilment.id)
        if not may_still_appear(fulfilment, chain.stored, seen, trusted=self._trusts(chain)):
            return False
        asyncio.get_running_loop().call_later(left, self._touch, fulfilment.id)
        return True

    def _decide(self, fulfilment: Fulfilment, chain: Chain) -> FulfilmentDecision:
        return decide(
            fulfilment,
            chain.stored,
            self._driver.seen(fulfilment.id),
            trusted=self._trusts(chain),
            attempt_floor=self._attempt_floor,
            stops_single_tasks=self._driver.traits.stops_single_tasks,
        )

    def _trusts(self, chain: Chain) -> bool:
        """Whether every attempt that was started under the session of the stored report would be seen here."""
        return chain.stored is not None and self._state.trusts(chain.stored.session)

    def _may_start(self, fulfilment: Fulfilment) -> bool:
        """A holder starts only while the session is confirmed, and never beside a holder that is still dying."""
        if not fulfilment.holds:
            return True
        if self._clock.monotonic() < self._state.confirmed_until and not self._driver.blocks(fulfilment):
            self._waiting.discard(fulfilment.id)
            return True
        self._waiting.add(fulfilment.id)
        return False

    def _touch_waiting(self) -> None:
        for identity in list(self._waiting):
            self._touch(identity)

    def _drop(self, identity: str) -> None:
        entry = self._entries.pop(identity, None)
        # The withdrawal may overtake the answer to the report of the end.
        if entry is not None and (last := entry.chain.outstanding or entry.chain.stored) is not None:
            self._work.ended(last)
        self._waiting.discard(identity)
        self._drop_at_driver(identity)

    def _drop_at_driver(self, identity: str) -> None:
        if identity in self._entries:
            return  # the fulfilment is desired again
        try:
            self._driver.drop(identity)
        except OSError as error:
            log.warning("a fulfilment is dropped later", fulfilment=identity, error=str(error))
            asyncio.get_running_loop().call_later(TROUBLE_SECONDS, self._drop_at_driver, identity)


def _observed(raw: bytes) -> Observed | None:
    """None also for an unreadable report: its revision is enough to report over it."""
    try:
        return payload.observed(raw) if raw else None
    except Invalid:
        return None
