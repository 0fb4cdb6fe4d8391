"""The cycle: snapshot -> queues -> decide -> bind -> commit -> record.

Woken by changes, never by a fixed sleep. A cycle is decided on a snapshot that contains every answered transaction
of the one before. A new leader always commits a first cycle, even an empty one; other cycles that change nothing are
not written.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

import structlog

from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import Failpoints
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.settings import settings_of
from controlplane.engine import decide as engine
from controlplane.engine.verdict import QUEUED
from controlplane.engine.world import look
from controlplane.model import times
from controlplane.model.errors import OutcomeUnknown, Unavailable
from controlplane.model.leadership import Cycle
from controlplane.scheduler.backlog import Backlog
from controlplane.scheduler.binder import Binder, Stamp
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, Outcome, put

log = structlog.get_logger(__name__)

# Changes of these trees can make room or change what may be placed.
_MAKES_ROOM = frozenset({"claims", "config"})
_RETRY_SECONDS = 1.0


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
        self._backlog = Backlog(ledgers)
        self._binder = Binder(ledgers, make_identity)
        self._touched: set[str] = set()
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Runs cycles until cancelled; Deposed ends the term."""
        unsubscribe = self._ledgers.subscribe(self._hear)
        try:
            self._touched.update(self._ledgers.orders)
            n = last_cycle(self._ledgers) + 1
            await self._cycle(n, first=True)
            while True:
                await self._wake.wait()
                self._wake.clear()
                if await self._cycle(n + 1, first=False):
                    n += 1
        finally:
            unsubscribe()

    def _hear(self, touched: Touched) -> None:
        self._touched |= touched.orders
        if touched.orders or touched.targets or touched.config & _MAKES_ROOM:
            self._wake.set()

    async def _cycle(self, n: int, *, first: bool) -> bool:
        """One cycle; whether it was written."""
        started = self._clock.monotonic()
        now = times.show(self._clock.wall())
        touched, self._touched = self._touched, set()
        self._backlog.update(touched, now)
        queues = self._backlog.queues()
        if not queues and not first:
            return False
        settings = settings_of(self._cache.snapshot)
        world = look(self._ledgers)
        decision = engine.decide(world, queues, settings.cycle_budget)
        if not decision.placements and not first:
            return False
        self._failpoints.reach("scheduler.before-commit")
        items = list(self._binder.items(decision.placements, Stamp(self._writer.epoch, n, now)))
        record = Cycle(
            epoch=self._writer.epoch,
            n=n,
            revision=world.revision,
            now=now,
            seed=0,
            settings_digest=hashlib.sha256(codec.encode(settings)).hexdigest()[:16],
            engine=engine.VERSION,
            considered=decision.considered,
            placed=decision.placed(),
            refused=decision.refused,
            seconds=round(self._clock.monotonic() - started, 6),
            hash=decision.digest(),
        )
        items.append(Item(then=(put(keys.cycle(record.epoch, n), codec.encode(record)),)))
        await self._commit(items)
        self._failpoints.reach("scheduler.after-commit")
        if decision.refused.get(QUEUED):
            self._wake.set()
        return True

    async def _commit(self, items: list[Item]) -> None:
        """Sends all and waits until the cache contains every answered one, so that the next cycle sees them."""
        outcomes = await asyncio.gather(*(self._writer.write(item) for item in items), return_exceptions=True)
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


def last_cycle(ledgers: Ledgers) -> int:
    """The number of the newest cycle on record; 0 before the first. What cannot be read was no cycle."""
    for entry in sorted(ledgers.cache.snapshot.all("cycles"), key=lambda entry: entry.parts[1], reverse=True):
        cycle = entry.sound(Cycle)
        if cycle is not None:
            return cycle.n
    return 0
