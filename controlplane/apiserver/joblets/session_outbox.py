"""The outbox of a session: the messages waiting to be sent to the joblet.

First come the welcome and the full list of desired fulfilments, then each change, together with the answers to the
joblet's messages. A change is a mark on its fulfilment until the fulfilment is sent, when the newest state is read. So
however slow the joblet, no more waits than its fulfilments and its unanswered messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

import structlog

from controlplane.apiserver.joblets.replica_messages import (
    Answer,
    Assigned,
    BatchPiece,
    Confirmed,
    Synced,
    Welcomed,
    Withdrawn,
    packed,
)
from controlplane.apiserver.joblets.session import REACH_SECONDS
from controlplane.apiserver.logs.log_broker import AboutLog
from controlplane.cache.reflector import Cache
from controlplane.cache.restore_state import is_restoring
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.fulfilment import Fulfilment
from controlplane.store import keys
from controlplane.wire.v1.joblets_pb2 import ReplicaBatch, Welcome

log = structlog.get_logger(__name__)


class SessionOutbox:
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
        """The number of answers waiting for a joblet which does not read."""
        return len(self._answers)

    def answer(self, answer: Answer | Confirmed | AboutLog) -> None:
        self._answers.append(answer)
        self._ready.set()

    def touch(self, fulfilment: str) -> None:
        """The fulfilment is desired, changed, or no longer desired."""
        self._touched[fulfilment] = None
        self._ready.set()

    async def batches(self, welcome: Welcome, since: int = 0) -> AsyncIterator[ReplicaBatch]:
        """Endless. Messages which become ready while a batch is being sent travel in the next batch.

        The list is not older than `since`, the beginning of the session, so it lacks the work taken from the target
        while the target was lost. Unavailable when the cache does not reach `since`.
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

    def _list(self, welcome: Welcome | None, snapshot: Snapshot) -> Iterator[BatchPiece]:
        if welcome is not None:
            yield Welcomed(welcome)
        for entry in sorted(snapshot.all(keys.DESIRED, self._target), key=lambda entry: entry.revision):
            yield from self._take_answers()
            assigned = assigned_by(entry, snapshot)
            if assigned is not None:
                yield assigned
        yield Synced(snapshot.revision)

    def _waiting(self) -> Iterator[BatchPiece]:
        yield from self._take_answers()
        touched, self._touched = self._touched, {}
        snapshot = self._cache.snapshot
        for fulfilment in touched:
            entry = snapshot.get(keys.DESIRED, self._target, fulfilment)
            if entry is None:
                yield Withdrawn(fulfilment, snapshot.revision)
                continue
            assigned = assigned_by(entry, snapshot)
            if assigned is not None:
                yield assigned

    def _take_answers(self) -> Iterator[BatchPiece]:
        while self._answers:
            yield self._answers.popleft()
            self.taken()


def assigned_by(entry: Entry[Fulfilment], snapshot: Snapshot) -> Assigned | None:
    """None for an unreadable value: the joblet goes on with the rest. None, too, while a restore is under way."""
    if is_restoring(snapshot):
        return None
    if entry.readable() is None:
        log.error("a fulfilment in etcd cannot be read, it is not assigned", key=entry.stored.key)
        return None
    reported = snapshot.get(keys.INVENTORY, *entry.parts)
    if reported is None:
        return Assigned(entry.stored.value, entry.revision)
    sound = reported.readable() is not None
    return Assigned(entry.stored.value, entry.revision, reported.stored.value if sound else b"", reported.revision)
