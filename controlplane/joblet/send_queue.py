"""Messages on their way to the replica: all messages that are ready travel in one batch, which waits for no others."""

from __future__ import annotations

import asyncio
from collections import deque

import grpc

from controlplane.wire.v1 import joblets_pb2, logs_pb2

MOST_MESSAGES = 500
MOST_BYTES = 1 << 20
# Small enough for a heartbeat behind the logs of one batch not to be late.
MOST_LOG_BYTES = 64 << 10

Call = grpc.aio.StreamStreamCall[joblets_pb2.JobletBatch, joblets_pb2.ReplicaBatch]


class SendQueue:
    def __init__(self) -> None:
        self._reports: deque[tuple[bytes, int]] = deque()
        self._beat: tuple[int, dict[str, float], int | None] | None = None
        self._capacity: dict[str, float] = {}
        self._logs: deque[logs_pb2.LogChunk] = deque()
        self._filled = asyncio.Event()

    def log(self, chunk: logs_pb2.LogChunk) -> None:
        """Logs go behind all other messages. The reader's grants bound how many chunks wait here."""
        self._logs.append(chunk)
        self._filled.set()

    def report(self, observed: bytes, base_revision: int) -> None:
        self._reports.append((observed, base_revision))
        self._filled.set()

    def beat(self, number: int, stats: dict[str, float], leftovers: int | None = None) -> None:
        """The newest heartbeat overtakes waiting reports, and replaces earlier heartbeats."""
        self._beat = (number, stats, leftovers)
        self._filled.set()

    def capacity(self, capacity: dict[str, float]) -> None:
        """The capacity travels with the next heartbeat."""
        self._capacity = capacity

    async def carry(self, call: Call) -> None:
        """Writes batches until the call ends; the next batch gathers while one is being written."""
        while True:
            await self._filled.wait()
            try:
                await call.write(self._gather())
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return  # the reader of the call gets the reason
            if not self._reports and not self._logs and self._beat is None:
                self._filled.clear()

    def _gather(self) -> joblets_pb2.JobletBatch:
        """The batch is filled in place: a message that is added to another would be copied with its content."""
        batch = joblets_pb2.JobletBatch()
        if self._beat is not None:
            heartbeat = batch.messages.add().heartbeat
            heartbeat.number = self._beat[0]
            heartbeat.stats.update(self._beat[1])
            if self._beat[2] is not None:
                heartbeat.leftovers = self._beat[2]
            heartbeat.capacity.update(self._capacity)
            self._beat, self._capacity = None, {}
        count = size = 0
        while self._reports and count < MOST_MESSAGES and size < MOST_BYTES:
            observed, base_revision = self._reports.popleft()
            report = batch.messages.add().report
            report.observed = observed
            report.base_revision = base_revision
            count += 1
            size += len(observed)
        if not self._reports:
            self._gather_logs(batch)
        return batch

    def _gather_logs(self, batch: joblets_pb2.JobletBatch) -> None:
        count = size = 0
        while self._logs and count < MOST_MESSAGES and size < MOST_LOG_BYTES:
            chunk = self._logs.popleft()
            batch.messages.add().log_chunk.CopyFrom(chunk)
            count += 1
            size += len(chunk.piece.data)
