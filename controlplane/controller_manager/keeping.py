"""What the leader keeps about the whole: the totals, and the events that tell what happened.

Both are written beside what happens, never in its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from controlplane.aio.clock import Clock
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.observer import Observer
from controlplane.cache.processed import ProcessedCounter
from controlplane.cache.settings import settings_of
from controlplane.controller_manager.isolating import IsolationKeeper
from controlplane.controller_manager.runner import Runner
from controlplane.controller_manager.totals import TotalsKeeper
from controlplane.model import identity
from controlplane.model.event import WINDOW_SECONDS, Event, Folding
from controlplane.quarantine import Quarantine
from controlplane.store.event_log import EventLog, Grant, Leases
from controlplane.store.fenced import FencedWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Warm in every replica, used by the one that leads."""

    ledgers: Ledgers
    processed: ProcessedCounter
    observer: Observer
    grant: Grant
    make_identity: Callable[[], str]
    replica: str

    @classmethod
    def on(cls, ledgers: Ledgers, *, grant: Grant, make_identity: Callable[[], str], replica: str) -> Keeping:
        return cls(
            ledgers=ledgers,
            processed=ProcessedCounter(ledgers.cache),
            observer=Observer(ledgers),
            grant=grant,
            make_identity=make_identity,
            replica=replica,
        )

    async def run(self, writer: FencedWriter, clock: Clock, quarantine: Quarantine | None = None) -> None:
        """One term of it. Whatever fails here is begun again: it stands in nobody's way."""
        quarantine = quarantine or Quarantine(clock)
        totals = TotalsKeeper(self.ledgers, self.processed, writer, clock)
        isolating = IsolationKeeper(self.ledgers, writer, clock, quarantine)
        asking = Runner(isolating, self.ledgers, clock, quarantine)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Runner(totals, self.ledgers, clock, quarantine).run())
            tasks.create_task(asking.run())
            tasks.create_task(isolating.follow(asking.add))
            events = partial(self._events, writer, clock)
            tasks.create_task(quarantine.supervise("keeping", "Cluster", "events", events))

    async def _events(self, writer: FencedWriter, clock: Clock) -> None:
        """Goes on behind the newest change that an event tells of."""
        by = f"controller_manager@{self.replica}"
        folding = Folding(self.make_identity, by=by, epoch=writer.epoch, at=clock.monotonic())
        leases = Leases(self.grant, lambda: float(settings_of(self.ledgers.cache.snapshot).event_ttl), clock)
        log = EventLog(folding, writer.write_all, leases, clock)
        recent = recent_events(self.ledgers, clock)
        log.go_on_from(recent)
        stop = self.observer.subscribe(log.record, max((event.at_revision for event in recent), default=0))
        try:
            await log.run()
        finally:
            stop()


def recent_events(ledgers: Ledgers, clock: Clock) -> list[Event]:
    """Those that began within the window, oldest first; the time is in their identities."""
    snapshot = ledgers.cache.snapshot
    since = int((clock.wall().timestamp() - WINDOW_SECONDS) * 1000)
    oldest = identity.from_bytes(max(since, 0).to_bytes(6, "big") + bytes(10))
    found = []
    for name in sorted(name for name in snapshot.names("events") if name >= oldest):
        entry = snapshot.get("events", name)
        event = entry.sound(Event) if entry is not None else None
        # One that tells of a change to come would keep all changes until then from being told.
        if event is not None and entry is not None and event.at_revision <= entry.revision:
            found.append(event)
    return found
