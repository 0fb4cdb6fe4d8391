"""Pieces of a log on their way from a joblet to a reader: what waits is bounded by bytes and by pieces."""

from __future__ import annotations

import pytest

from controlplane.apiserver.logs.log_broker import WINDOW_BYTES, StreamLogs
from controlplane.model.errors import Broken
from controlplane.wire.v1 import logs_pb2


def a_chunk(offset: int, data: bytes = b"x", stream: str = "stdout") -> logs_pb2.LogChunk:
    return logs_pb2.LogChunk(log=1, piece=logs_pb2.LogPiece(stream=stream, offset=offset, data=data))


async def test_small_pieces_in_a_row_wait_as_few() -> None:
    taps = StreamLogs("here", True, lambda _message: None)
    tap = taps.open(logs_pb2.LogQuery())
    for offset in range(10_000):
        taps.hear(a_chunk(offset))
    pieces = 0
    size = 0
    while size < 10_000:
        piece = await tap.read()
        assert piece is not None
        assert piece.offset == size
        pieces, size = pieces + 1, size + len(piece.data)
    assert pieces < 10


async def test_pieces_of_two_outputs_keep_their_order() -> None:
    taps = StreamLogs("here", True, lambda _message: None)
    tap = taps.open(logs_pb2.LogQuery())
    for stream, offset in (("stdout", 0), ("stderr", 0), ("stdout", 1), ("stdout", 2)):
        taps.hear(a_chunk(offset, stream=stream))
    read = [await tap.read() for _ in range(3)]
    assert [(piece.stream, piece.data) for piece in read if piece] == [
        ("stdout", b"x"), ("stderr", b"x"), ("stdout", b"xx"),
    ]  # fmt: skip


async def test_pieces_that_do_not_belong_together_cannot_pass_the_window_by_being_tiny() -> None:
    taps = StreamLogs("here", True, lambda _message: None)
    tap = taps.open(logs_pb2.LogQuery())
    for number in range(WINDOW_BYTES // 64 + 1):
        taps.hear(a_chunk(number * 10))
    for _ in range(WINDOW_BYTES // 64):
        assert await tap.read() is not None
    with pytest.raises(Broken):
        await tap.read()


async def test_a_piece_does_not_keep_the_batch_that_it_came_in() -> None:
    taps = StreamLogs("here", True, lambda _message: None)
    tap = taps.open(logs_pb2.LogQuery())
    chunk = a_chunk(0)
    taps.hear(chunk)
    chunk.piece.data = b"changed"
    piece = await tap.read()
    assert piece is not None
    assert piece.data == b"x"
