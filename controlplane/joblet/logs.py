"""The logs that a replica reads over one connection: each sends no more than it was granted, and none of them waits.

What is sent is bounded by what the replica grants, so that a reader who stops reading stops the reading here, and
nothing else. Everything ends with the connection; a reader goes on over the next one, at the byte where it stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from controlplane.joblet.log_source import LogQuery, LogSource
from controlplane.model import texts
from controlplane.model.errors import ControlPlaneError, Invalid, LimitExceeded, Refused
from controlplane.model.fulfilment import TaskRef
from controlplane.wire.v1 import logs_pb2

CHUNK_BYTES = 64 << 10
MOST_OPEN = 64
log = structlog.get_logger()

Open = Callable[[LogQuery], LogSource]
Send = Callable[[logs_pb2.LogChunk], None]


class Reading:
    """One open log and what may still be sent of it."""

    def __init__(self, credit: int) -> None:
        self.task: asyncio.Task[None] | None = None
        self._credit = credit
        self._granted = asyncio.Event()

    def grant(self, credit: int) -> None:
        self._credit += max(credit, 0)
        self._granted.set()

    async def allowance(self) -> int:
        while self._credit <= 0:
            self._granted.clear()
            await self._granted.wait()
        return min(self._credit, CHUNK_BYTES)

    def spend(self, sent: int) -> None:
        self._credit -= sent


class Logs:
    def __init__(self, open_source: Open, send: Send) -> None:
        self._open_source = open_source
        self._send = send
        self._readings: dict[int, Reading] = {}

    def open(self, message: logs_pb2.OpenLog) -> None:
        if len(self._readings) >= MOST_OPEN:
            self._fail(message.log, LimitExceeded(f"at most {MOST_OPEN} logs of a target are read at a time"))
            return
        reading = self._readings[message.log] = Reading(message.credit)
        reading.task = asyncio.get_running_loop().create_task(self._read(message.log, message.query, reading))

    def grant(self, message: logs_pb2.GrantLog) -> None:
        reading = self._readings.get(message.log)
        if reading is not None:
            reading.grant(message.credit)

    def close(self, message: logs_pb2.CloseLog) -> None:
        reading = self._readings.pop(message.log, None)
        if reading is not None and reading.task is not None:
            reading.task.cancel()

    def end(self) -> None:
        """The connection is gone."""
        for reading in self._readings.values():
            if reading.task is not None:
                reading.task.cancel()
        self._readings.clear()

    async def _read(self, number: int, query: logs_pb2.LogQuery, reading: Reading) -> None:
        try:
            source = self._open_source(query_of(query))
            try:
                while (piece := await source.read(await reading.allowance())) is not None:
                    reading.spend(len(piece.data))
                    self._send(logs_pb2.LogChunk(log=number, piece=logs_pb2.LogPiece(**piece._asdict())))
            finally:
                source.close()
            self._send(logs_pb2.LogChunk(log=number, end=True))
        except ControlPlaneError as error:
            self._fail(number, error)
        except OSError as error:
            log.warning("a log cannot be read", order=query.order, job=query.job, index=query.index, error=str(error))
            self._fail(number, Refused(f"the log cannot be read at its target: {error.strerror or error}"))
        finally:
            if self._readings.get(number) is reading:
                del self._readings[number]

    def _fail(self, number: int, error: ControlPlaneError) -> None:
        self._send(
            logs_pb2.LogChunk(log=number, end=True, code=type(error).__name__, message=texts.cut(str(error), 1000))
        )


def query_of(said: logs_pb2.LogQuery) -> LogQuery:
    """Invalid when it could name anything but an attempt."""
    for field in ("order", "job"):
        value = getattr(said, field)
        if not value or "/" in value or "\0" in value or len(value) > 100:
            raise Invalid(field, "must be the name of one")
    if said.stream not in ("", "stdout", "stderr"):
        raise Invalid("stream", f"must be stdout or stderr, not {said.stream!r}")
    start = (said.start.stdout, said.start.stderr)
    if min(start) < 0 or said.tail_lines < 0:
        raise Invalid("start", "must not be negative")
    return LogQuery(
        order=said.order,
        fulfilment=said.fulfilment,
        task=TaskRef(job=said.job, index=said.index, attempt=said.attempt),
        stream=said.stream,
        follow=said.follow,
        tail_lines=said.tail_lines,
        start=start if said.HasField("start") else None,
    )
