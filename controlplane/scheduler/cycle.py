"""The cycle: snapshot -> queues -> decide -> bind -> commit -> record.

Woken by changes and by moments that were named before (a window that opens, a time before which nothing was to
start), never by a fixed sleep. A cycle is decided on a snapshot that contains every answered transaction
of the one before. A new leader always commits a first cycle, even an empty one; other cycles that change nothing are
not written.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import chain

import structlog

from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import Failpoints
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.engine import decide as engine
from controlplane.engine.backlog import Backlog
from controlplane.engine.decide import Decision
from controlplane.engine.rules.book import Book
from controlplane.engine.service import Queue
from controlplane.engine.words import QUEUED
from controlplane.engine.world import Lookout, World
from controlplane.model import times, windows
from controlplane.model.errors import OutcomeUnknown, Unavailable
from controlplane.model.leadership import Cycle
from controlplane.scheduler.binder import Binder, Stamp
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, Outcome, put

log = structlog.get_logger(__name__)

# Changes of these trees can make room or change what may be placed.
_MAKES_ROOM = frozenset({"claims", "config", "config/rules", "config/settings", "status/cluster"})
_RETRY_SECONDS = 1.0
_AT_ONCE = 20
# Beyond so many queues x targets a decision takes long enough to be felt by who asks this replica something.
_LARGE = 20_000
# Moments are written in milliseconds: an alarm must not come before the one it was set for.
_ROUNDING_SECONDS = 0.001


class Scheduler:
    """One term's scheduler."""

    def __init__(
        self,
        ledgers: Ledgers,
        writer: FencedWriter,
        clock: Clock,
        *,
        make_identity: Callable[[], str],
        failpoints: Failpoints,
    ) -> None:
        self._ledgers = ledgers
        self._cache = ledgers.cache
        self._writer = writer
        self._clock = clock
        self._failpoints = failpoints
        self._lookout = Lookout(ledgers)
        self._backlog = Backlog(ledgers)
        self._book: Book | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._binder = Binder(ledgers, make_identity)
        self._touched: set[str] = set()
        self._wake = asyncio.Event()
        # Set when the first cycle is over: what else a leader has to do may wait for that.
        self.begun = asyncio.Event()

    async def run(self) -> None:
        """Runs cycles until cancelled; Deposed ends the term."""
        unsubscribe = self._ledgers.subscribe(self._hear)
        try:
            self._touched.update(self._ledgers.orders)
            n = last_cycle(self._ledgers) + 1
            await self._cycle(n, first=True)
            self.begun.set()
            while True:
                await self._wake.wait()
                self._wake.clear()
                if await self._cycle(n + 1, first=False):
                    n += 1
        finally:
            unsubscribe()
            self._set_alarm(None)

    def _hear(self, touched: Touched) -> None:
        self._touched |= touched.orders
        if touched.orders or touched.targets or touched.config & _MAKES_ROOM:
            self._wake.set()

    async def _cycle(self, n: int, *, first: bool) -> bool:
        """One cycle; whether it was written."""
        started = self._clock.monotonic()
        # As it is written down, so that a replay sees the same.
        now = times.parse(times.show(self._clock.wall()), "now")
        touched, self._touched = self._touched, set()
        self._backlog.update(touched, now, self._rules())
        queues = self._backlog.queues()
        if not queues and not first:
            self._wake_at(self._backlog.next_time(), now)
            return False
        world = self._lookout.look(now, apart=self._backlog.apart, preempting=self._backlog.preempting)
        decision = await self._decide(world, queues)
        self._wake_at(next_moment(world, self._backlog), now)
        if not decision.batches and not decision.evictions and not first:
            return False
        self._failpoints.reach("scheduler.before-commit")
        stamp = Stamp(self._writer.epoch, n, times.show(now), world.revision)
        record = record_of(world, decision, stamp, self._clock.monotonic() - started)
        with self._ledgers.sending.of({placement.order for placement in decision.placements}):
            await self._commit(
                chain(
                    self._binder.items(decision.placements, stamp),
                    self._binder.evictions(decision.evictions, stamp),
                    (Item(then=(put(keys.cycle(record.epoch, n), codec.encode(record)),)),),
                )
            )
        self._failpoints.reach("scheduler.after-commit")
        if decision.refused.get(QUEUED):
            self._wake.set()
        return True

    def _rules(self) -> Book:
        """The rules as they are now; those that do not compile are told of once."""
        book = self._lookout.book(self._cache.snapshot)
        if book is not self._book:
            self._book = book
            for name, why in book.broken.items():
                log.error("a rule does not compile and counts as not matching", rule=name, error=why)
        return book

    async def _decide(self, world: World, queues: list[Queue]) -> Decision:
        """A large decision is made beside the loop: nothing that it reads changes meanwhile."""
        if len(queues) * len(world.targets) * world.book.weight < _LARGE:
            return engine.decide(world, queues)
        return await asyncio.to_thread(engine.decide, world, queues)

    def _wake_at(self, moment: str | None, now: datetime) -> None:
        if moment is None:
            self._set_alarm(None)
        else:
            self._set_alarm(max(0.0, (times.parse(moment, "moment") - now).total_seconds()) + _ROUNDING_SECONDS)

    def _set_alarm(self, seconds: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None
        if seconds is not None:
            self._alarm = asyncio.get_running_loop().call_later(seconds, self._wake.set)

    async def _send(self, items: Iterable[Item]) -> list[Outcome | BaseException]:
        """The first are under way while the last are being made; nobody who asks this replica waits for all of it."""
        writes: list[asyncio.Future[Outcome]] = []
        try:
            for item in items:
                writes.append(asyncio.ensure_future(self._write(item)))
                if len(writes) % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            return await asyncio.gather(*writes, return_exceptions=True)
        except asyncio.CancelledError:
            for write in writes:
                write.cancel()
            raise

    async def _write(self, item: Item) -> Outcome:
        outcome = await self._writer.write(item)
        if not outcome.succeeded:
            self._binder.refused(item)
        return outcome

    async def _commit(self, items: Iterable[Item]) -> None:
        """Sends all and waits until the cache contains every answered one, so that the next cycle sees them."""
        outcomes = await self._send(items)
        answered = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
        refused = sum(not outcome.succeeded for outcome in answered)
        if refused:
            log.warning("placements were refused by their compares, deciding again", refused=refused)
            self._wake.set()
        if answered:
            await self._cache.reached(max(outcome.revision for outcome in answered))
        for failure in outcomes:
            if isinstance(failure, OutcomeUnknown | Unavailable):
                # The picture now contains whatever happened; decide again on it.
                log.warning("a cycle was not committed whole", error=str(failure))
                self._touched.update(self._ledgers.orders)
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._wake.set)
            elif isinstance(failure, BaseException):
                raise failure


def record_of(world: World, decision: Decision, stamp: Stamp, seconds: float) -> Cycle:
    return Cycle(
        epoch=stamp.epoch,
        n=stamp.cycle,
        revision=world.revision,
        now=stamp.now,
        seed=0,
        settings_digest=hashlib.sha256(codec.encode(world.settings)).hexdigest()[:16],
        engine=engine.VERSION,
        considered=decision.considered,
        placed=decision.placed(),
        refused=decision.refused,
        seconds=round(seconds, 6),
        hash=decision.digest(),
        waiting=decision.waiting,
    )


def next_moment(world: World, backlog: Backlog) -> str | None:
    """When something may become placeable by time alone."""
    moments = [moment for moment in (backlog.next_time(),) if moment is not None]
    for row in world.targets:
        change = windows.next_change(row.windows, world.now) if row.windows else None
        if change is not None:
            moments.append(times.show(change))
    if world.book.reads_now:
        moments.append(times.show(world.now.replace(second=0, microsecond=0) + timedelta(minutes=1)))
    return min(moments, default=None)


def last_cycle(ledgers: Ledgers) -> int:
    """The number of the newest cycle on record; 0 before the first. What cannot be read was no cycle."""
    for entry in sorted(ledgers.cache.snapshot.all("cycles"), key=lambda entry: entry.parts[1], reverse=True):
        cycle = entry.sound(Cycle)
        if cycle is not None:
            return cycle.n
    return 0
