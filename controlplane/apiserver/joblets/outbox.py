"""What waits to be sent to one joblet.

First the welcome and the full list of what is desired, then each change, together with the answers to what the joblet
sent. A change is only a mark on its fulfilment until it is sent, when the newest state is read: however slow the
joblet, never more waits than it has fulfilments and unanswered messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

import structlog

from controlplane.apiserver.joblets.messages import (
    AboutLog,
    Answer,
    Assigned,
    Confirmed,
    Piece,
    Synced,
    Welcomed,
    Withdrawn,
    packed,
)
from controlplane.apiserver.joblets.session import REACH_SECONDS
from controlplane.cache.reflector import Cache
from controlplane.cache.restoring import is_restoring
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.fulfilment import Fulfilment, Observed
from controlplane.wire.v1.joblets_pb2 import ReplicaBatch, Welcome

log = structlog.get_logger(__name__)


class Outbox:
    def __init__(self, target: str, cache: Cache) -> None:
        self._target = target
        self._cache = cache
        self._answers: deque[Answer | Confirmed | AboutLog] = deque()
        self._touched: dict[str, None] = {}
        self._ready = asyncio.Event()
        # Called when answers are on their way.
        self.taken: Callable[[], None] = lambda: None

    @property
    def answers(self) -> int:
        """How many wait for a joblet that does not read."""
        return len(self._answers)

    def answer(self, answer: Answer | Confirmed | AboutLog) -> None:
        self._answers.append(answer)
        self._ready.set()

    def touch(self, fulfilment: str) -> None:
        """The fulfilment is desired, changed, or no longer desired."""
        self._touched[fulfilment] = None
        self._ready.set()

    async def batches(self, welcome: Welcome, since: int = 0) -> AsyncIterator[ReplicaBatch]:
        """Endless. What becomes ready while a batch is on its way travels in the next one.

        The list is not older than `since`, the beginning of the session: what was taken from the target while it was
        lost is not in it any more. Unavailable when that cannot be had.
        """
        late = self._cache.revision < since
        if late:
            for batch in packed([Welcomed(welcome)]):
                yield batch
            await self._cache.reached(since, REACH_SECONDS)
        for batch in packed(self._list(None if late else welcome, self._cache.snapshot)):
            yield batch
        while True:
            await self._ready.wait()
            self._ready.clear()
            for batch in packed(self._waiting()):
                yield batch

    def _list(self, welcome: Welcome | None, snapshot: Snapshot) -> Iterator[Piece]:
        if welcome is not None:
            yield Welcomed(welcome)
        for entry in sorted(snapshot.all("desired", self._target), key=lambda entry: entry.revision):
            yield from self._take_answers()
            assigned = assigned_by(entry, snapshot)
            if assigned is not None:
                yield assigned
        yield Synced(snapshot.revision)

    def _waiting(self) -> Iterator[Piece]:
        yield from self._take_answers()
        touched, self._touched = self._touched, {}
        snapshot = self._cache.snapshot
        for fulfilment in touched:
            entry = snapshot.get("desired", self._target, fulfilment)
            if entry is None:
                yield Withdrawn(fulfilment, snapshot.revision)
                continue
            assigned = assigned_by(entry, snapshot)
            if assigned is not None:
                yield assigned

    def _take_answers(self) -> Iterator[Piece]:
        while self._answers:
            yield self._answers.popleft()
            self.taken()


def assigned_by(entry: Entry, snapshot: Snapshot) -> Assigned | None:
    """None for a value that cannot be read: the joblet goes on with the rest. And for what a restore brought back."""
    if is_restoring(snapshot):
        return None
    if entry.sound(Fulfilment) is None:
        log.error("a fulfilment in etcd cannot be read, it is not assigned", key=entry.stored.key)
        return None
    reported = snapshot.get("inventory", *entry.parts)
    if reported is None:
        return Assigned(entry.stored.value, entry.revision)
    sound = reported.sound(Observed) is not None
    return Assigned(entry.stored.value, entry.revision, reported.stored.value if sound else b"", reported.revision)
