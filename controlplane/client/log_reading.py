"""The log of a task, read through failures of replicas: reading goes on at the next endpoint, at the next byte."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc

from controlplane.client.caller import Caller, came_from_server, understand
from controlplane.client.resuming_watch import next_message
from controlplane.model.errors import ControlPlaneError, NotFound, OutcomeUnknown, Unavailable
from controlplane.wire.v1 import logs_pb2

_STREAM_SECONDS = 24 * 3600.0
_PAUSE_SECONDS = 0.1


async def read_logs(
    caller: Caller, stub: Any, request: logs_pb2.LogsRequest
) -> AsyncGenerator[logs_pb2.LogsChunk, None]:
    """Yields chunks, without the final chunk, which carries the mark of the end only.

    Unavailable, or NotFound after the first chunk, is raised only when as many refusals in a row came as there are
    replicas. A followed log never gives up while no replica answers at all, and says so in a note.
    """
    refusals, unanswered = 0, False
    doubtful: tuple[type[ControlPlaneError], ...] = (Unavailable, OutcomeUnknown)
    request.min_revision = max(request.min_revision, caller.revision)
    while True:
        try:
            channel = await caller.ready_channel(caller.clock.monotonic() + caller.timeouts.total_seconds)
        except Unavailable as error:
            if not request.follow:
                raise
            if not unanswered:
                yield logs_pb2.LogsChunk(job=request.job, index=request.index, note=f"{error}; trying on")
            unanswered = True
            continue
        unanswered = False
        call = channel.stub(stub).Logs(request, timeout=_STREAM_SECONDS, metadata=channel.metadata)
        try:
            async with aclosing(_chunks(call, channel)) as chunks:
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
        caller.channels.avoid(channel)
        await caller.clock.sleep(_PAUSE_SECONDS)


async def _chunks(call: Any, channel: Any) -> AsyncGenerator[logs_pb2.LogsChunk, None]:
    """Ends without the final chunk when the replica stopped answering."""
    try:
        while (chunk := await next_message(call, channel)) is not grpc.aio.EOF:
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
