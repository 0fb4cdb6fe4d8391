"""The leader's records of the whole: totals, events and isolated keys.

All are written beside the work of the leader, never in its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from controlplane.aio.clock import Clock
from controlplane.cache.effective_settings import settings_of
from controlplane.cache.ended_orders import EndedOrderCounter
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.observer import Observer
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.isolating import IsolationKeeper
from controlplane.controller_manager.runner import Runner
from controlplane.controller_manager.totals_keeper import TotalsKeeper
from controlplane.model import identity
from controlplane.model.event import WINDOW_SECONDS, Event, Folding
from controlplane.quarantine import Quarantine
from controlplane.store import keys
from controlplane.store.event_log import EventLog, Grant, Leases
from controlplane.store.fenced import FencedWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class TermRecords:
    """Warm in every replica, used by the leader."""

    ledgers: Ledgers
    processed: EndedOrderCounter
    observer: Observer
    grant: Grant
    make_identity: Callable[[], str]
    replica: str

    @classmethod
    def on(cls, ledgers: Ledgers, *, grant: Grant, make_identity: Callable[[], str], replica: str) -> TermRecords:
        return cls(
            ledgers=ledgers,
            processed=EndedOrderCounter(ledgers.cache),
            observer=Observer(ledgers),
            grant=grant,
            make_identity=make_identity,
            replica=replica,
        )

    async def run(self, writer: FencedWriter, clock: Clock, quarantine: Quarantine | None = None) -> None:
        """For a term. A part that fails is started again, and disturbs no other work."""
        quarantine = quarantine or Quarantine(clock)
        settled = ControllerWriter(writer, self.ledgers.cache)
        totals = TotalsKeeper(self.ledgers, self.processed, settled, clock)
        isolating = IsolationKeeper(self.ledgers, settled, clock, quarantine)
        asking = Runner(isolating, self.ledgers, clock, quarantine)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Runner(totals, self.ledgers, clock, quarantine).run())
            tasks.create_task(asking.run())
            tasks.create_task(isolating.follow(asking.add))
            events = partial(self._events, writer, clock)
            tasks.create_task(quarantine.supervise("keeping", "Cluster", "events", events))

    async def _events(self, writer: FencedWriter, clock: Clock) -> None:
        """Goes on behind the newest change told in an event."""
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
    """Events that began within the window, oldest first; the time is in their identities."""
    snapshot = ledgers.cache.snapshot
    since = int((clock.wall().timestamp() - WINDOW_SECONDS) * 1000)
    oldest = identity.from_bytes(max(since, 0).to_bytes(6, "big") + bytes(10))
    recent = []
    for name in sorted(name for name in snapshot.names(keys.EVENTS) if name >= oldest):
        entry = snapshot.get(keys.EVENTS, name)
        event = entry.readable() if entry is not None else None
        # An event about a future revision would suppress all changes until then.
        if event is not None and entry is not None and event.at_revision <= entry.revision:
            recent.append(event)
    return recent
