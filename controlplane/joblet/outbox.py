"""Messages on their way to the replica: what is ready travels together, and nothing waits for more."""

from __future__ import annotations

import asyncio
from collections import deque

import grpc

from controlplane.wire.v1 import joblets_pb2

MOST_MESSAGES = 500
MOST_BYTES = 1 << 20

Call = grpc.aio.StreamStreamCall[joblets_pb2.JobletBatch, joblets_pb2.ReplicaBatch]


class Outbox:
    def __init__(self) -> None:
        self._reports: deque[tuple[bytes, int]] = deque()
        self._beat: tuple[int, dict[str, float], int | None] | None = None
        self._filled = asyncio.Event()

    def report(self, observed: bytes, base_revision: int) -> None:
        self._reports.append((observed, base_revision))
        self._filled.set()

    def beat(self, number: int, stats: dict[str, float], leftovers: int | None = None) -> None:
        """The newest heartbeat goes before the reports that wait, and stands for those before it."""
        self._beat = (number, stats, leftovers)
        self._filled.set()

    async def carry(self, call: Call) -> None:
        """Writes batches until the call ends; while one is being written the next one gathers."""
        while True:
            await self._filled.wait()
            try:
                await call.write(self._gather())
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return  # the reader of the call sees why
            if not self._reports and self._beat is None:
                self._filled.clear()

    def _gather(self) -> joblets_pb2.JobletBatch:
        """Written in place: a message that is put into another is copied with all that it holds."""
        batch = joblets_pb2.JobletBatch()
        if self._beat is not None:
            heartbeat = batch.messages.add().heartbeat
            heartbeat.number = self._beat[0]
            heartbeat.stats.update(self._beat[1])
            if self._beat[2] is not None:
                heartbeat.leftovers = self._beat[2]
            self._beat = None
        count = size = 0
        while self._reports and count < MOST_MESSAGES and size < MOST_BYTES:
            observed, base_revision = self._reports.popleft()
            report = batch.messages.add().report
            report.observed = observed
            report.base_revision = base_revision
            count += 1
            size += len(observed)
        return batch
