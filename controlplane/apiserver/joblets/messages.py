"""What a replica says to a joblet: each piece knows how big it is and writes itself into a batch.

Written in place, since a message that is put into another is copied with all that it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from controlplane.wire.v1 import logs_pb2
from controlplane.wire.v1.joblets_pb2 import ReplicaBatch, ReplicaMessage, Welcome

# Well below the 4 MiB that a gRPC client accepts by default, also with one very big fulfilment at the end.
_MAX_BYTES = 1 << 20
_MAX_MESSAGES = 1000
# What names and numbers take, generously.
_FRAME_BYTES = 128


class Piece(Protocol):
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
    """A fulfilment and the last report of it, both as they are stored."""

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
    """The intervals are those from now on; 0 leaves one as it is."""

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
    """To one report. `code` is empty when it was stored, else the error's name; `stored` is what is there instead."""

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


@dataclass(frozen=True, slots=True)
class AboutLog:
    """open_log: one is wanted; grant_log: more of it may come; close_log: nobody reads it any more."""

    kind: str
    said: logs_pb2.OpenLog | logs_pb2.GrantLog | logs_pb2.CloseLog

    def size(self) -> int:
        return self.said.ByteSize()

    def write(self, message: ReplicaMessage) -> None:
        getattr(message, self.kind).CopyFrom(self.said)


def packed(pieces: Iterable[Piece]) -> Iterator[ReplicaBatch]:
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
