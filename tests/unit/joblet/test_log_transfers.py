"""LogTransfers behind everything else on the joblet's stream, and never more of them than was granted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controlplane.joblet.log_source import LogQuery, OutputPiece
from controlplane.joblet.log_transfers import CHUNK_BYTES, MOST_OPEN, LogTransfers, query_of
from controlplane.joblet.send_queue import MOST_LOG_BYTES, SendQueue
from controlplane.model.errors import Invalid, NotFound
from controlplane.wire.v1.joblets_pb2 import JobletBatch
from controlplane.wire.v1.logs_pb2 import CloseLog, GrantLog, LogChunk, LogOffsets, LogPiece, OpenLog
from controlplane.wire.v1.logs_pb2 import LogQuery as Asked

QUERY = Asked(order="01HZZZZZZZZZZZZZZZZZZZZZZZ", fulfilment="f", job="a", index=1, attempt=2)


class Tape:
    """An endless log, or one that ends."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._at = 0
        self.closed: bool = False

    async def read(self, most: int) -> OutputPiece | None:
        size = min(most, self._left)
        if size == 0:
            return None
        piece = OutputPiece("stdout", self._at, b"x" * size)
        self._left, self._at = self._left - size, self._at + size
        return piece

    def close(self) -> None:
        self.closed = True


async def settled() -> None:
    """Until nothing more happens by itself."""
    for _ in range(50):
        await asyncio.sleep(0)


def sizes(sent: list[LogChunk]) -> list[int]:
    return [len(chunk.piece.data) for chunk in sent]


async def test_no_more_is_sent_than_was_granted() -> None:
    sent: list[LogChunk] = []
    tape = Tape(10 * CHUNK_BYTES)
    logs = LogTransfers(lambda query: tape, sent.append)
    logs.open(OpenLog(log=1, query=QUERY, credit=CHUNK_BYTES + 10))
    await settled()
    assert sizes(sent) == [CHUNK_BYTES, 10]
    logs.grant(GrantLog(log=1, credit=5))
    await settled()
    assert sizes(sent) == [CHUNK_BYTES, 10, 5]
    logs.close(CloseLog(log=1))
    await settled()
    assert tape.closed
    logs.grant(GrantLog(log=1, credit=CHUNK_BYTES))
    await settled()
    assert len(sent) == 3


async def test_the_end_is_told_and_frees_its_place() -> None:
    sent: list[LogChunk] = []
    logs = LogTransfers(lambda query: Tape(3), sent.append)
    for number in range(2 * MOST_OPEN):
        logs.open(OpenLog(log=number, query=QUERY, credit=100))
        await settled()
    assert [chunk.end for chunk in sent] == [False, True] * 2 * MOST_OPEN
    assert {chunk.code for chunk in sent} == {""}


async def test_too_many_at_a_time_are_refused() -> None:
    sent: list[LogChunk] = []
    logs = LogTransfers(lambda query: Tape(1), sent.append)
    for number in range(MOST_OPEN + 1):
        logs.open(OpenLog(log=number, query=QUERY, credit=0))
    assert [(chunk.log, chunk.code) for chunk in sent] == [(MOST_OPEN, "LimitExceeded")]
    logs.end()


async def test_what_a_driver_refuses_is_told_by_its_name() -> None:
    sent: list[LogChunk] = []

    def refuse(query: LogQuery) -> Any:
        raise NotFound("nothing is kept")

    LogTransfers(refuse, sent.append).open(OpenLog(log=1, query=QUERY, credit=10))
    await settled()
    assert [(chunk.end, chunk.code, chunk.message) for chunk in sent] == [(True, "NotFound", "nothing is kept")]


async def test_a_disk_that_fails_is_no_end_of_the_connection() -> None:
    sent: list[LogChunk] = []

    def fail(query: LogQuery) -> Any:
        raise OSError(5, "Input/output error")

    LogTransfers(fail, sent.append).open(OpenLog(log=1, query=QUERY, credit=10))
    await settled()
    assert [(chunk.end, chunk.code) for chunk in sent] == [(True, "Refused")]


@pytest.mark.parametrize(
    "wrong", [{"job": "../x"}, {"order": ""}, {"order": "a/b"}, {"stream": "x"}, {"start": LogOffsets(stdout=-1)}]
)
def test_a_question_cannot_leave_the_folder_of_its_attempt(wrong: dict[str, Any]) -> None:
    asked = Asked()
    asked.CopyFrom(QUERY)
    asked.MergeFrom(Asked(**wrong))
    if "order" in wrong:
        asked.order = wrong["order"]
    with pytest.raises(Invalid):
        query_of(asked)


class Wire:
    """Takes batches one at a time, as slowly as the test likes."""

    def __init__(self) -> None:
        self.batches: asyncio.Queue[JobletBatch] = asyncio.Queue(1)

    async def write(self, batch: JobletBatch) -> None:
        await self.batches.put(batch)


async def test_heartbeats_and_reports_overtake_logs() -> None:
    queue, wire = SendQueue(), Wire()
    chunk = LogChunk(log=1, piece=LogPiece(stream="stdout", data=b"x" * MOST_LOG_BYTES))
    for _ in range(10):
        queue.log(chunk)
    carrying = asyncio.ensure_future(queue.carry(wire))  # type: ignore[arg-type]
    await settled()
    queue.report(b"observed", 1)
    queue.beat(7, {})
    kinds = []
    for _ in range(10):
        batch = await wire.batches.get()
        kinds.append([message.WhichOneof("message") for message in batch.messages])
        await settled()
    assert kinds[0] == ["log_chunk"]
    # One batch was being written, and one gathered, before they came.
    assert ["heartbeat", "report", "log_chunk"] in kinds[1:3]
    assert sum(kind.count("log_chunk") for kind in kinds) == 10
    assert all(kind.count("log_chunk") == 1 for kind in kinds)
    carrying.cancel()
