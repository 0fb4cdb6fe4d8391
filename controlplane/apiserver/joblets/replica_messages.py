"""The messages of a replica to a joblet, as pieces: a piece knows its size and writes itself into a batch.

Pieces are written in place, since a message put into another message is copied with all of its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from controlplane.wire.v1.joblets_pb2 import ReplicaBatch, ReplicaMessage, Welcome

# Well below the 4 MiB that a gRPC client accepts by default, also with one very big fulfilment at the end.
_MAX_BYTES = 1 << 20
_MAX_MESSAGES = 1000
# Generous room for names and numbers.
_FRAME_BYTES = 128


class BatchPiece(Protocol):
    def size(self) -> int: ...

    def write(self, message: ReplicaMessage) -> None: ...


@dataclass(frozen=True, slots=True)
class Welcomed:
    welcome: Welcome

    def size(self) -> int:
        return self.welcome.ByteSize()

    def write(self, message: ReplicaMessage) -> None:
        message.welcome.CopyFrom(self.welcome)


@dataclass(frozen=True, slots=True)
class Assigned:
    """A fulfilment and its last report, both as stored."""

    fulfilment: bytes
    revision: int
    observed: bytes = b""
    observed_revision: int = 0

    def size(self) -> int:
        return _FRAME_BYTES + len(self.fulfilment) + len(self.observed)

    def write(self, message: ReplicaMessage) -> None:
        assign = message.assign
        assign.fulfilment = self.fulfilment
        assign.revision = self.revision
        assign.observed = self.observed
        assign.observed_revision = self.observed_revision


@dataclass(frozen=True, slots=True)
class Withdrawn:
    fulfilment: str
    revision: int

    def size(self) -> int:
        return _FRAME_BYTES

    def write(self, message: ReplicaMessage) -> None:
        message.withdraw.id = self.fulfilment
        message.withdraw.revision = self.revision


@dataclass(frozen=True, slots=True)
class Synced:
    revision: int

    def size(self) -> int:
        return _FRAME_BYTES

    def write(self, message: ReplicaMessage) -> None:
        message.synced.revision = self.revision


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The answer to a heartbeat, with the intervals from now on; 0 leaves an interval unchanged."""

    heartbeat: int
    heartbeat_seconds: float = 0.0
    stats_seconds: float = 0.0

    def size(self) -> int:
        return _FRAME_BYTES

    def write(self, message: ReplicaMessage) -> None:
        message.heartbeat_ack.number = self.heartbeat
        message.heartbeat_ack.heartbeat_seconds = self.heartbeat_seconds
        message.heartbeat_ack.stats_seconds = self.stats_seconds


@dataclass(slots=True)
class Answer:
    """The answer to a report: `code` is empty when the report was stored, else the error's name.

    `stored` is the value in etcd in place of a refused report.
    """

    fulfilment: str
    report: int
    code: str = ""
    why: str = ""
    observed_revision: int = 0
    stored: bytes = b""
    revision: int = 0

    def size(self) -> int:
        return _FRAME_BYTES + len(self.why) * 4 + len(self.stored)

    def write(self, message: ReplicaMessage) -> None:
        ack = message.report_ack
        ack.id = self.fulfilment
        ack.report = self.report
        ack.observed_revision = self.observed_revision
        ack.revision = self.revision
        if self.code:
            ack.code = self.code
            ack.message = self.why
            ack.stored = self.stored


def packed(pieces: Iterable[BatchPiece]) -> Iterator[ReplicaBatch]:
    """The pieces in their order, in as few batches as fit."""
    batch = ReplicaBatch()
    count = size = 0
    for piece in pieces:
        length = piece.size()
        if count and (count == _MAX_MESSAGES or size + length > _MAX_BYTES):
            yield batch
            batch, count, size = ReplicaBatch(), 0, 0
        piece.write(batch.messages.add())
        count += 1
        size += length
    if count:
        yield batch
