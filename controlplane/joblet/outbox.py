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
        self._messages: deque[joblets_pb2.JobletMessage] = deque()
        self._filled = asyncio.Event()

    def add(self, message: joblets_pb2.JobletMessage) -> None:
        self._messages.append(message)
        self._filled.set()

    async def carry(self, call: Call) -> None:
        """Writes batches until the call ends; while one is being written the next one gathers."""
        while True:
            await self._filled.wait()
            try:
                await call.write(self._gather())
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return  # the reader of the call sees why
            if not self._messages:
                self._filled.clear()

    def _gather(self) -> joblets_pb2.JobletBatch:
        batch = joblets_pb2.JobletBatch()
        size = 0
        while self._messages and len(batch.messages) < MOST_MESSAGES and size < MOST_BYTES:
            message = self._messages.popleft()
            size += message.ByteSize()
            batch.messages.append(message)
        return batch
