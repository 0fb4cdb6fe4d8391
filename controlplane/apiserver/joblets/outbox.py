"""What waits to be sent to one joblet.

First the welcome and the full list of what is desired, then each change, together with the answers to what the joblet
sent. A change is only a mark on its fulfilment until it is sent, when the newest state is read: however slow the
joblet, never more waits than it has fulfilments and unanswered messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator

import structlog
from google.protobuf.message import Message

from controlplane.cache.reflector import Cache
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.fulfilment import Fulfilment, Observed
from controlplane.wire import convert
from controlplane.wire.v1 import fulfilments_pb2, joblets_pb2
from controlplane.wire.v1.joblets_pb2 import ReplicaMessage

log = structlog.get_logger(__name__)

# Well below the 4 MiB that a gRPC client accepts by default, also with one very big fulfilment at the end.
_MAX_BYTES = 1 << 20
_MAX_MESSAGES = 1000


class Outbox:
    def __init__(self, target: str, cache: Cache) -> None:
        self._target = target
        self._cache = cache
        self._answers: deque[ReplicaMessage] = deque()
        self._touched: dict[str, None] = {}
        self._ready = asyncio.Event()

    def answer(self, message: ReplicaMessage) -> None:
        self._answers.append(message)
        self._ready.set()

    def touch(self, fulfilment: str) -> None:
        """The fulfilment is desired, changed, or no longer desired."""
        self._touched[fulfilment] = None
        self._ready.set()

    async def batches(self, welcome: joblets_pb2.Welcome) -> AsyncIterator[joblets_pb2.ReplicaBatch]:
        """Endless. What becomes ready while a batch is on its way travels in the next one."""
        for batch in packed(self._list(welcome, self._cache.snapshot)):
            yield batch
        while True:
            await self._ready.wait()
            self._ready.clear()
            for batch in packed(self._waiting()):
                yield batch

    def _list(self, welcome: joblets_pb2.Welcome, snapshot: Snapshot) -> Iterator[ReplicaMessage]:
        yield ReplicaMessage(welcome=welcome)
        for entry in sorted(snapshot.all("desired", self._target), key=lambda entry: entry.revision):
            yield from self._take_answers()
            assign = assign_of(entry, snapshot)
            if assign is not None:
                yield ReplicaMessage(assign=assign)
        yield ReplicaMessage(synced=joblets_pb2.Synced(revision=snapshot.revision))

    def _waiting(self) -> Iterator[ReplicaMessage]:
        yield from self._take_answers()
        touched, self._touched = self._touched, {}
        snapshot = self._cache.snapshot
        for fulfilment in touched:
            entry = snapshot.get("desired", self._target, fulfilment)
            if entry is None:
                yield ReplicaMessage(withdraw=joblets_pb2.Withdraw(id=fulfilment, revision=snapshot.revision))
                continue
            assign = assign_of(entry, snapshot)
            if assign is not None:
                yield ReplicaMessage(assign=assign)

    def _take_answers(self) -> Iterator[ReplicaMessage]:
        while self._answers:
            yield self._answers.popleft()


def assign_of(entry: Entry, snapshot: Snapshot) -> joblets_pb2.Assign | None:
    """None for a value that cannot be read or sent: the joblet goes on with the rest."""
    message = joblets_pb2.Assign(revision=entry.revision)
    if not _fill(message.fulfilment, entry, Fulfilment):
        log.error("a fulfilment in etcd cannot be read, it is not assigned", key=entry.stored.key)
        return None
    message.fulfilment.revision = entry.revision
    reported = snapshot.get("inventory", *entry.parts)
    if reported is not None:
        message.observed_revision = reported.revision
        observed = fulfilments_pb2.Observed()
        if _fill(observed, reported, Observed):
            message.fulfilment.observed.CopyFrom(observed)
    return message


def _fill(message: Message, entry: Entry, kind: type[Fulfilment] | type[Observed]) -> bool:
    """Whether the entry is of that kind and its numbers fit into a message, which JSON does not promise."""
    found = entry.sound(kind)
    if found is None:
        return False
    try:
        convert.fill(found, message)
    except ValueError:
        return False
    return True


def packed(messages: Iterable[ReplicaMessage]) -> Iterator[joblets_pb2.ReplicaBatch]:
    """The messages in their order, in as few batches as fit."""
    batch: list[ReplicaMessage] = []
    size = 0
    for message in messages:
        length = message.ByteSize()
        if batch and (len(batch) == _MAX_MESSAGES or size + length > _MAX_BYTES):
            yield joblets_pb2.ReplicaBatch(messages=batch)
            batch, size = [], 0
        batch.append(message)
        size += length
    if batch:
        yield joblets_pb2.ReplicaBatch(messages=batch)
