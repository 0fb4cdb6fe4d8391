"""The log of one task through whatever happens to replicas: it goes on at the next endpoint, at the next byte."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc

from controlplane.client.caller import Caller, came_from_server, understand
from controlplane.client.watch import next_message
from controlplane.model.errors import ControlPlaneError, NotFound, OutcomeUnknown, Unavailable
from controlplane.wire.v1 import logs_pb2

_STREAM_SECONDS = 24 * 3600.0
_PAUSE_SECONDS = 0.1


async def read_logs(
    caller: Caller, stub: Any, request: logs_pb2.LogsRequest
) -> AsyncGenerator[logs_pb2.LogsChunk, None]:
    """Without the last chunk, which only says that it is the last.

    An answer that something is away, or that what was read before is not there, is believed when as many replicas as
    there are gave it in a row. Followed, it never gives up while no replica answers at all, and says so in a note.
    """
    refusals, alone = 0, False
    doubtful: tuple[type[ControlPlaneError], ...] = (Unavailable, OutcomeUnknown)
    request.min_revision = max(request.min_revision, caller.revision)
    while True:
        try:
            lane = await caller.lane(caller.clock.monotonic() + caller.patience.total_seconds)
        except Unavailable as error:
            if not request.follow:
                raise
            if not alone:
                yield logs_pb2.LogsChunk(job=request.job, index=request.index, note=f"{error}; trying on")
            alone = True
            continue
        alone = False
        call = lane.stub(stub).Logs(request, timeout=_STREAM_SECONDS)
        try:
            async with aclosing(_chunks(call, lane)) as chunks:
                async for chunk in chunks:
                    if chunk.end:
                        return
                    _advance(request, chunk)
                    refusals = 0
                    doubtful = (Unavailable, OutcomeUnknown, NotFound)
                    yield chunk
        except grpc.aio.AioRpcError as error:
            failure = understand(error)
            refusals += came_from_server(error)
            if not isinstance(failure, doubtful) or refusals >= max(1, len(caller.channels.tried)):
                raise failure from None
        caller.channels.leave(lane)
        await caller.clock.sleep(_PAUSE_SECONDS)


async def _chunks(call: Any, lane: Any) -> AsyncGenerator[logs_pb2.LogsChunk, None]:
    """Ends without the last one when the server stopped answering."""
    try:
        while (chunk := await next_message(call, lane)) is not grpc.aio.EOF:
            yield chunk
    finally:
        call.cancel()


def _advance(request: logs_pb2.LogsRequest, chunk: logs_pb2.LogsChunk) -> None:
    if not chunk.HasField("piece"):
        return
    if request.resume.attempt != chunk.attempt:
        request.resume.attempt = chunk.attempt
        request.resume.start.Clear()
    setattr(request.resume.start, chunk.piece.stream, chunk.piece.offset + len(chunk.piece.data))
