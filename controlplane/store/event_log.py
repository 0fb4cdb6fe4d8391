"""The event log: gathers happenings and writes events, some at a time, on leases that many events share.

`record` never waits and never fails: writing events costs a few transactions a second at most. A lease serves for a
minute or 1,000 events, and lasts so much longer that each event on the lease lives for the configured time. Writing an
event again is the same write, so that a failed write is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import structlog

from controlplane.aio.clock import Clock
from controlplane.model import times
from controlplane.model.errors import NotFound, OutcomeUnknown, Refused, Unavailable
from controlplane.model.event import Event, Folding, Happening
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, put

log = structlog.get_logger(__name__)

FLUSH_SECONDS = 0.5
MOST_AT_ONCE = 100
_EVENTS_AN_ITEM = 20
_LEASE_SECONDS = 60.0
_LEASE_EVENTS = 1000
_RETRY_SECONDS = 2.0

Write = Callable[[Sequence[Item]], Awaitable[object]]
Grant = Callable[[int], Awaitable[int]]


class Leases:
    """The lease of new events."""

    def __init__(self, grant: Grant, ttl_seconds: Callable[[], float], clock: Clock) -> None:
        self._grant = grant
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._lease = self._events = 0
        self._until = 0.0

    async def take(self, events: int) -> int:
        now = self._clock.monotonic()
        if not self._lease or now >= self._until or self._events + events > _LEASE_EVENTS:
            self._lease = await self._grant(int(self._ttl_seconds() + _LEASE_SECONDS))
            self._events, self._until = 0, now + _LEASE_SECONDS
        self._events += events
        return self._lease

    def forget(self) -> None:
        """The lease is gone, for instance revoked by hand."""
        self._lease = 0


class EventLog:
    def __init__(self, folding: Folding, write: Write, leases: Leases, clock: Clock) -> None:
        self._folding = folding
        self._write = write
        self._leases = leases
        self._clock = clock
        self._news = asyncio.Event()

    def go_on_from(self, events: Iterable[Event]) -> None:
        self._folding.go_on_from(events, self._clock.monotonic())

    def record(self, happening: Happening) -> None:
        self._folding.add(happening, self._clock.monotonic(), times.show(self._clock.wall()))
        self._news.set()

    async def run(self) -> None:
        """Writes until cancelled. Events that are still in memory then are not written."""
        while True:
            await self._news.wait()
            self._news.clear()
            written = await self.flush()
            if self._folding.waiting:
                self._news.set()
            await self._clock.sleep(FLUSH_SECONDS if written else _RETRY_SECONDS)

    async def flush(self) -> bool:
        """A single round; False when the events could not be written and will be tried again."""
        events = self._folding.take(MOST_AT_ONCE, self._clock.monotonic(), times.show(self._clock.wall()))
        if not events:
            return True
        try:
            lease = await self._leases.take(len(events))
            await self._write(list(_items(events, lease)))
        except (NotFound, OutcomeUnknown, Unavailable) as error:
            log.info("events could not be written, they are tried again", events=len(events), error=str(error))
            self._leases.forget()
            self._folding.give_back(events)
            return False
        except Refused:
            # An event of the batch can never be written: write the other events one by one.
            await self._write_apart(events)
        return True

    async def _write_apart(self, events: Sequence[Event]) -> None:
        for event in events:
            try:
                await self._write(list(_items([event], await self._leases.take(1))))
            except Refused as error:
                log.warning("an event cannot be written and is dropped", reason=event.reason, error=str(error))
            except (OutcomeUnknown, Unavailable):
                self._folding.give_back([event])


def _items(events: Sequence[Event], lease: int) -> Iterable[Item]:
    for start in range(0, len(events), _EVENTS_AN_ITEM):
        some = events[start : start + _EVENTS_AN_ITEM]
        yield Item(then=tuple(put(keys.event(event.id), codec.encode(event), lease=lease) for event in some))
