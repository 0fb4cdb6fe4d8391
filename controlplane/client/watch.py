"""A watch that outlives replicas: it goes on at the next endpoint, and the reader sees neither gaps nor repeats.

A server sends what is there, then `sync`, then changes. After a reconnect what was already given out is skipped, and
what vanished in between is given out as deleted. A silent stream is told from a stopped server by asking the same
server something small.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import grpc

from controlplane.client.caller import Caller, came_from_server, understand
from controlplane.client.channels import Lane
from controlplane.model.errors import OutcomeUnknown, Unavailable
from controlplane.wire.v1 import cluster_pb2, cluster_pb2_grpc

_SILENCE_SECONDS = 2.0
_PROBE_SECONDS = 1.0
_STREAM_SECONDS = 3600.0


@dataclass(frozen=True)
class Stream:
    """Which stream to hold; `key` is the field that identifies an object in it ('' when each message replaces all)."""

    stub: Any
    method: str
    key: str


class Seen:
    """What the reader was told: one digest per object."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._digests: dict[Any, bytes] = {}
        self._listed: set[Any] | None = None

    def start_over(self) -> None:
        """A new stream begins: what it does not list by its `sync` is gone."""
        self._listed = set()

    def news(self, event: Any) -> list[Any]:
        """The events that the reader has not been told yet."""
        if event.type == "sync":
            return self._vanished(event)
        identity = getattr(event.object, self._key)
        if event.type == "delete":
            return [event] if self._digests.pop(identity, None) is not None or self._listed is None else []
        if self._listed is not None:
            self._listed.add(identity)
        digest = hashlib.blake2b(event.object.SerializeToString(deterministic=True), digest_size=16).digest()
        if self._digests.get(identity) == digest:
            return []
        self._digests[identity] = digest
        return [event]

    def _vanished(self, sync: Any) -> list[Any]:
        gone = [identity for identity in self._digests if identity not in (self._listed or ())]
        self._listed = None
        events = []
        for identity in gone:
            del self._digests[identity]
            event = type(sync)(type="delete", revision=sync.revision)
            setattr(event.object, self._key, identity)
            events.append(event)
        return [*events, sync]


async def watch(caller: Caller, stream: Stream, request: Any) -> AsyncGenerator[Any, None]:
    """Events, `sync` among them; raises Unavailable when no endpoint could be reached for the caller's patience."""
    seen = Seen(stream.key)
    while True:
        seen.start_over()
        request.min_revision = max(request.min_revision, caller.revision)
        async for event in messages(caller, stream, request):
            caller.revision = max(caller.revision, event.revision)
            for news in seen.news(event):
                yield news


async def latest(caller: Caller, stream: Stream, request: Any) -> AsyncGenerator[Any, None]:
    """Messages that each replace the one before; a repeat of the same one is skipped."""
    last: Any = None
    while True:
        async for message in messages(caller, stream, request):
            if message != last:
                last = message
                yield message


async def messages(caller: Caller, stream: Stream, request: Any) -> AsyncGenerator[Any, None]:
    """One stream at one endpoint until it ends for a reason that another endpoint may mend."""
    lane = await caller.lane(caller.clock.monotonic() + caller.patience.total_seconds)
    call = getattr(lane.stub(stream.stub), stream.method)(request, timeout=_STREAM_SECONDS)
    try:
        while (message := await next_message(call, lane)) is not grpc.aio.EOF:
            yield message
    except grpc.aio.AioRpcError as error:
        failure = understand(error)
        if not isinstance(failure, Unavailable | OutcomeUnknown):
            raise failure from None
    finally:
        call.cancel()
    caller.channels.leave(lane)
    await caller.clock.sleep(0.1)


async def next_message(call: Any, lane: Lane) -> Any:
    """The next message, or EOF when the server stopped answering."""
    reading = asyncio.ensure_future(call.read())
    try:
        while not (await asyncio.wait({reading}, timeout=_SILENCE_SECONDS))[0]:
            if not await _answers(lane):
                return grpc.aio.EOF
        return reading.result()
    finally:
        reading.cancel()


async def _answers(lane: Lane) -> bool:
    try:
        await lane.stub(cluster_pb2_grpc.ClusterStub).GetLeader(cluster_pb2.LeaderRequest(), timeout=_PROBE_SECONDS)
    except grpc.aio.AioRpcError as error:
        return came_from_server(error)
    return True
