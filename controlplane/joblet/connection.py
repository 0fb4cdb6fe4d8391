"""One connection of a target to a replica: from the hello to its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import grpc

from controlplane.joblet.log_transfers import LogTransfers, Open
from controlplane.joblet.send_queue import SendQueue
from controlplane.model import silence
from controlplane.wire.v1 import joblets_pb2


class Connection:
    """`release` frees the slot in which the target says hello; `logs` opens the log of an attempt."""

    def __init__(self, release: Callable[[], None], logs: Open) -> None:
        self._release: Callable[[], None] | None = release
        self.call: grpc.aio.StreamStreamCall[joblets_pb2.JobletBatch, joblets_pb2.ReplicaBatch] | None = None
        self.welcome: joblets_pb2.Welcome | None = None
        self.queue = SendQueue()
        self.logs = LogTransfers(logs, self.queue.log)
        self.beats: dict[int, float] = {}
        self.next_beat: asyncio.TimerHandle | None = None
        self.closed = False
        self.start_over = ""
        self.heartbeat_seconds = 1.0
        self._stats_seconds = 0.0
        self._reported = False
        self._reported_at = float("-inf")
        self._writer: asyncio.Task[None] | None = None

    def on_welcome(self, welcome: joblets_pb2.Welcome) -> None:
        assert self.call is not None
        self.welcome = welcome
        self.release_slot()
        self._beat_every(welcome.heartbeat_seconds)
        self._stats_seconds = welcome.stats_seconds
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self.queue.carry(self.call))

    def take_intervals(self, ack: joblets_pb2.HeartbeatAck) -> None:
        """Takes over the intervals of the acknowledgement; an interval that it does not name stays."""
        self._beat_every(ack.heartbeat_seconds or self.heartbeat_seconds)
        self._stats_seconds = ack.stats_seconds or self._stats_seconds

    def _beat_every(self, seconds: float) -> None:
        """Often enough for the lease, whatever interval the replica asks for."""
        assert self.welcome is not None
        self.heartbeat_seconds = silence.beat_seconds(seconds, self.welcome.lease_seconds)

    def stats_due(self, now: float) -> bool:
        """Whether the heartbeat of now carries stats."""
        if now - self._reported_at < self._stats_seconds:
            return False
        # Joblets that connected at the same time must not report at the same time for ever: the second report is early.
        early = 0.0 if self._reported else random.uniform(0.0, self._stats_seconds)
        self._reported, self._reported_at = True, now - early
        return True

    @property
    def silence_seconds(self) -> float:
        """How long a replica may be silent: a third of the lease, but longer than a healthy replica between beats."""
        lease = self.welcome.lease_seconds if self.welcome is not None else 0.0
        return max(lease / 3, self.heartbeat_seconds * 1.5)

    @property
    def overdue_seconds(self) -> float:
        """How long the answer to a report may take; a living replica answers sooner, if only with an error."""
        return max(2.0, 2 * self.welcome.lease_seconds) if self.welcome is not None else 2.0

    def release_slot(self) -> None:
        """Welcomed or not, the target lets the next one say hello."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def close(self) -> None:
        """The reader of the call then sees a cancellation of the call, which is none of its task."""
        self.closed = True
        self.release_slot()
        self.logs.end()
        if self.next_beat is not None:
            self.next_beat.cancel()
        if self._writer is not None:
            self._writer.cancel()
        if self.call is not None:
            self.call.cancel()
