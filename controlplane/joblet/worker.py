"""The worker of one target: brings what the driver sees to what the control plane desires, and reports it.

It is driven by three kinds of events: messages of the replica, notices of the driver, confirmed heartbeats. Each one
ends in `_touch` for the fulfilments it concerns. Nothing is started and nothing is reported between the loss of a
stream and the end of the full list that the next one begins with. It never awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import Failpoints
from controlplane.joblet.driver import Driver
from controlplane.joblet.home import Home
from controlplane.joblet.reconcile import Decision, decide, may_still_come
from controlplane.joblet.reporter import Chain, Verdict, fit
from controlplane.joblet.stats import Machine, Work
from controlplane.model import times
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import Fulfilment, Observed
from controlplane.wire import payload
from controlplane.wire.v1 import joblets_pb2

# A report in JSON and the revision that it is based on.
Send = Callable[[bytes, int], None]

AGAIN_SECONDS = 0.1
MOST_AGAIN_SECONDS = 5.0
TROUBLE_SECONDS = 1.0
log = structlog.get_logger()


class Entry:
    """One desired fulfilment and its chain of reports."""

    __slots__ = ("chain", "fulfilment", "sent_at")

    def __init__(self, fulfilment: Fulfilment) -> None:
        self.fulfilment = fulfilment
        self.chain = Chain()
        self.sent_at = 0.0


class Worker:
    def __init__(
        self, target: str, driver: Driver, home: Home, *, clock: Clock, failpoints: Failpoints, machine: Machine
    ) -> None:
        self.target = target
        self._driver = driver
        self._home = home
        self._clock = clock
        self._failpoints = failpoints
        self._machine = machine
        self._work = Work(clock)
        self._entries: dict[str, Entry] = {}
        self._waiting: set[str] = set()
        self._listed: set[str] | None = None
        self._session = ""
        self._send: Send | None = None
        self._renew: Callable[[], None] = lambda: None
        self._known = 0
        self._quiet: asyncio.Event | None = None
        self._hurry: Callable[[], None] = lambda: None
        self._told = 0
        self._doubt_until = 0.0
        driver.attach(self._notice)

    def doubt(self, seconds: float) -> None:
        """For so long what a joblet elsewhere was about to start may still come."""
        self._doubt_until = self._clock.monotonic() + seconds

    # The stream

    def connected(self, session: str, send: Send, renew: Callable[[], None], hurry: Callable[[], None]) -> None:
        """A full list follows. `renew` gives up the session and connects anew, `hurry` beats at once."""
        self._home.remember(session)
        self._session = session
        self._listed = set()
        self._send = send
        self._renew = renew
        self._hurry = hurry
        for entry in self._entries.values():
            entry.chain.reconnected()

    def restored(self, restored: bool) -> None:
        """Whether the control plane came from a backup: then what was known before is not started again."""
        self._known = self._home.known_attempt if restored else 0

    async def start_over(self) -> None:
        """Stops all that runs here; returns when nothing of it is alive any more."""
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
            log.error("a fulfilment cannot be read, it is left alone", target=self.target, error=str(error))
            return
        entry = self._entries.get(fulfilment.id)
        if entry is None:
            entry = self._entries[fulfilment.id] = Entry(fulfilment)
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
        """The list is complete. What is not in it is stopped before anything else is started."""
        listed, self._listed = self._listed or set(), None
        for identity in [*self._entries, *self._driver.fulfilments()]:
            if identity not in listed:
                self._drop(identity)
        for identity in list(self._entries):
            self._touch(identity)
        self._tell_leftovers()

    def retire(self) -> None:
        """The target is no more: nothing is desired, and nobody is there to be told."""
        for identity in [*self._entries, *self._driver.fulfilments()]:
            self._drop(identity)

    def acknowledge(self, ack: joblets_pb2.ReportAck) -> None:
        entry = self._entries.get(ack.id)
        if entry is None:
            return
        verdict = entry.chain.acknowledge(ack.report, ack.code, _observed(ack.stored), ack.observed_revision)
        if verdict is Verdict.GO_ON:
            self._touch(ack.id)
        elif verdict is Verdict.GONE:
            self._drop(ack.id)
        elif verdict is Verdict.STALE_SESSION:
            log.warning("the session is no longer valid", target=self.target, session=self._session)
            self._renew()
        elif verdict is Verdict.AGAIN_LATER:
            log.info("a report was not stored", fulfilment=ack.id, code=ack.code, reason=ack.message)
            pause = min(MOST_AGAIN_SECONDS, AGAIN_SECONDS * 2 ** min(10, entry.chain.failures))
            asyncio.get_running_loop().call_later(pause, self._touch, ack.id)

    def confirmed(self) -> None:
        """The session is confirmed for longer: what waited for that may start."""
        self._touch_waiting()

    def overdue(self, before: float) -> bool:
        """Whether a report sent before that time still has no answer."""
        return any(entry.chain.outstanding is not None and entry.sent_at < before for entry in self._entries.values())

    def all_alive(self) -> int:
        """For the hello: before the list, all that lives may be left over."""
        self._told = self._driver.running() + self._driver.dying()
        return self._told

    def leftovers(self) -> int | None:
        """How much still dies that is no longer desired; None before that was compared with the full list."""
        if self._listed is not None or self._send is None:
            return None
        self._told = self._driver.dying()
        return self._told

    def stats(self) -> dict[str, float]:
        now = {"desired": len(self._entries), "running": self._driver.running()}
        return {**now, **self._work.stats(), **self._machine.stats()}

    # The driver

    def _notice(self, identity: str) -> None:
        if self._quiet is not None:
            self._quiet.set()
        if identity not in self._entries and self._listed is None and self._send is not None:
            self._drop_at_driver(identity)  # it showed up after the list, and nobody desires it
        self._touch(identity)
        self._touch_waiting()
        self._tell_leftovers()

    # What follows

    def _tell_leftovers(self) -> None:
        """The target waits for this: it gets nothing before its old work is dead."""
        told = self._told
        if self.leftovers() not in (None, told):
            self._hurry()

    def _touch(self, identity: str) -> None:
        """Trouble with one fulfilment, such as a full disk, is its own: it is looked at again, and the rest goes on."""
        try:
            self._act(identity)
        except OSError as error:
            log.warning("a fulfilment is looked at again later", fulfilment=identity, error=str(error))
            asyncio.get_running_loop().call_later(TROUBLE_SECONDS, self._touch, identity)

    def _act(self, identity: str) -> None:
        entry = self._entries.get(identity)
        if entry is None or self._listed is not None or self._send is None:
            return
        fulfilment, chain = entry.fulfilment, entry.chain
        self._driver.recall(fulfilment)
        if self._in_doubt(fulfilment, chain):
            return
        decision = self._decide(fulfilment, chain)
        for task in decision.stop:
            self._driver.stop(identity, task, fulfilment.why_stop(task.job, task.index) or "")
        if decision.start and self._may_start(fulfilment):
            self._failpoints.reach("joblet.before-start")
            for task in decision.start:
                self._home.mark.reach(task.attempt)
                self._driver.start(fulfilment, task)
            decision = self._decide(fulfilment, chain)
        if decision.phase == "Running":
            self._failpoints.reach("joblet.after-start")
        if not chain.has_news(decision):
            return
        now = times.show(self._clock.wall())
        report = chain.next((identity, self.target, self._session), fit(decision), now)
        if report is not None:
            entry.sent_at = self._clock.monotonic()
            self._send(payload.encode(report), chain.base)

    def _in_doubt(self, fulfilment: Fulfilment, chain: Chain) -> bool:
        """Whether another may still bring it about: it is looked at again when nobody can any more."""
        doubt = self._doubt_until - self._clock.monotonic()
        if doubt <= 0:
            return False
        seen = self._driver.seen(fulfilment.id)
        if not may_still_come(fulfilment, chain.stored, seen, trusted=self._trusts(chain)):
            return False
        asyncio.get_running_loop().call_later(doubt, self._touch, fulfilment.id)
        return True

    def _decide(self, fulfilment: Fulfilment, chain: Chain) -> Decision:
        seen = self._driver.seen(fulfilment.id)
        trusted = self._trusts(chain)
        return decide(
            fulfilment, chain.stored, seen, trusted=trusted, known=self._known, apart=self._driver.stops_apart
        )

    def _trusts(self, chain: Chain) -> bool:
        """Whether all that was started under the session of the stored report would be seen here."""
        return chain.stored is not None and self._home.trusts(chain.stored.session)

    def _may_start(self, fulfilment: Fulfilment) -> bool:
        """A holder starts only while the session is confirmed, and never beside a holder that is still dying."""
        if not fulfilment.holds:
            return True
        if self._clock.monotonic() < self._home.until and not self._driver.blocks(fulfilment):
            self._waiting.discard(fulfilment.id)
            return True
        self._waiting.add(fulfilment.id)
        return False

    def _touch_waiting(self) -> None:
        for identity in list(self._waiting):
            self._touch(identity)

    def _drop(self, identity: str) -> None:
        entry = self._entries.pop(identity, None)
        # The answer to the report of its end may be overtaken by what follows from it.
        if entry is not None and (last := entry.chain.outstanding or entry.chain.stored) is not None:
            self._work.ended(last)
        self._waiting.discard(identity)
        self._drop_at_driver(identity)

    def _drop_at_driver(self, identity: str) -> None:
        if identity in self._entries:
            return  # it is desired again
        try:
            self._driver.drop(identity)
        except OSError as error:
            log.warning("a fulfilment is dropped later", fulfilment=identity, error=str(error))
            asyncio.get_running_loop().call_later(TROUBLE_SECONDS, self._drop_at_driver, identity)


def _observed(raw: bytes) -> Observed | None:
    """None also for what cannot be read: its revision is enough to report something better over it."""
    try:
        return payload.observed(raw) if raw else None
    except Invalid:
        return None
