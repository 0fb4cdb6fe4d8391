"""The logs that a replica reads over one connection, each sent only as far as the replica has granted bytes.

A reader that stops reading grants no more bytes, which pauses its own log and no other traffic. All transfers end with
the connection; a reader goes on over the next connection at the byte where it stopped.
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
log = structlog.get_logger(__name__)

Open = Callable[[LogQuery], LogSource]
Send = Callable[[logs_pb2.LogChunk], None]


class LogTransfer:
    """One open log and the number of bytes that may still be sent."""

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


class LogTransfers:
    def __init__(self, open_source: Open, send: Send) -> None:
        self._open_source = open_source
        self._send = send
        self._transfers: dict[int, LogTransfer] = {}

    def open(self, message: logs_pb2.OpenLog) -> None:
        if len(self._transfers) >= MOST_OPEN:
            self._fail(message.log, LimitExceeded(f"at most {MOST_OPEN} logs of a target are read at a time"))
            return
        transfer = self._transfers[message.log] = LogTransfer(message.credit)
        transfer.task = asyncio.get_running_loop().create_task(self._read(message.log, message.query, transfer))

    def grant(self, message: logs_pb2.GrantLog) -> None:
        transfer = self._transfers.get(message.log)
        if transfer is not None:
            transfer.grant(message.credit)

    def close(self, message: logs_pb2.CloseLog) -> None:
        transfer = self._transfers.pop(message.log, None)
        if transfer is not None and transfer.task is not None:
            transfer.task.cancel()

    def end(self) -> None:
        """The connection is gone."""
        for transfer in self._transfers.values():
            if transfer.task is not None:
                transfer.task.cancel()
        self._transfers.clear()

    async def _read(self, number: int, query: logs_pb2.LogQuery, transfer: LogTransfer) -> None:
        try:
            source = self._open_source(query_of(query))
            try:
                while (piece := await source.read(await transfer.allowance())) is not None:
                    transfer.spend(len(piece.data))
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
            if self._transfers.get(number) is transfer:
                del self._transfers[number]

    def _fail(self, number: int, error: ControlPlaneError) -> None:
        self._send(
            logs_pb2.LogChunk(log=number, end=True, code=type(error).__name__, message=texts.cut(str(error), 1000))
        )


def query_of(message: logs_pb2.LogQuery) -> LogQuery:
    """Invalid when a field could name anything but an attempt."""
    for field in ("order", "job"):
        value = getattr(message, field)
        if not value or "/" in value or "\0" in value or len(value) > 100:
            raise Invalid(field, "must be the name of one")
    if message.stream not in ("", "stdout", "stderr"):
        raise Invalid("stream", f"must be stdout or stderr, not {message.stream!r}")
    start = (message.start.stdout, message.start.stderr)
    if min(start) < 0 or message.tail_lines < 0:
        raise Invalid("start", "must not be negative")
    return LogQuery(
        order=message.order,
        fulfilment=message.fulfilment,
        task=TaskRef(job=message.job, index=message.index, attempt=message.attempt),
        stream=message.stream,
        follow=message.follow,
        tail_lines=message.tail_lines,
        start=start if message.HasField("start") else None,
    )
