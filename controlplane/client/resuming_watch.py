"""A watch that outlives replicas: the stream resumes at the next endpoint, without gaps or repeats for the reader.

A replica sends all objects, then `sync`, then changes. After a reconnect, objects that the reader has already are
skipped, and objects that vanished meanwhile are delivered as deleted. A small call to the same replica tells a quiet
stream from a stopped replica.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import grpc

from controlplane.client.caller import Caller, came_from_server, understand
from controlplane.client.channels import EndpointChannel
from controlplane.model.errors import OutcomeUnknown, Unavailable
from controlplane.wire.v1 import cluster_pb2, cluster_pb2_grpc

_SILENCE_SECONDS = 2.0
_PROBE_SECONDS = 1.0
_STREAM_SECONDS = 3600.0


@dataclass(frozen=True)
class WatchStream:
    """A stream method; `key` is the field that identifies an object ('' when each message replaces the last)."""

    stub: Any
    method: str
    key: str


class DeliveredObjects:
    """The objects that the reader has, as a digest per object."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._digests: dict[Any, bytes] = {}
        self._listed: set[Any] | None = None

    def start_over(self) -> None:
        """A new stream begins: an object that the stream does not list before its `sync` is gone."""
        self._listed = set()

    def news(self, event: Any) -> list[Any]:
        """The event, unless the reader has its object already; a `sync` adds a deletion per vanished object."""
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


async def watch(caller: Caller, stream: WatchStream, request: Any) -> AsyncGenerator[Any, None]:
    """Events, `sync` among them; raises Unavailable when no endpoint was reached within the caller's total time-out."""
    delivered = DeliveredObjects(stream.key)
    while True:
        delivered.start_over()
        request.min_revision = max(request.min_revision, caller.revision)
        async for event in messages(caller, stream, request):
            caller.revision = max(caller.revision, event.revision)
            for news in delivered.news(event):
                yield news


async def latest(caller: Caller, stream: WatchStream, request: Any) -> AsyncGenerator[Any, None]:
    """Messages that each replace the message before; repeats are skipped."""
    last: Any = None
    while True:
        async for message in messages(caller, stream, request):
            if message != last:
                last = message
                yield message


async def messages(caller: Caller, stream: WatchStream, request: Any) -> AsyncGenerator[Any, None]:
    """A stream at a single endpoint, until a failure that another endpoint may not have; other failures raise."""
    channel = await caller.ready_channel(caller.clock.monotonic() + caller.timeouts.total_seconds)
    call = getattr(channel.stub(stream.stub), stream.method)(
        request, timeout=_STREAM_SECONDS, metadata=channel.metadata
    )
    try:
        while (message := await next_message(call, channel)) is not grpc.aio.EOF:
            yield message
    except grpc.aio.AioRpcError as error:
        failure = understand(error)
        if not isinstance(failure, Unavailable | OutcomeUnknown):
            raise failure from None
    finally:
        call.cancel()
    caller.channels.avoid(channel)
    await caller.clock.sleep(0.1)


async def next_message(call: Any, channel: EndpointChannel) -> Any:
    """The next message; EOF when the replica stopped answering."""
    reading = asyncio.ensure_future(call.read())
    try:
        while not (await asyncio.wait({reading}, timeout=_SILENCE_SECONDS))[0]:
            if not await _answers(channel):
                return grpc.aio.EOF
        return reading.result()
    finally:
        reading.cancel()


async def _answers(channel: EndpointChannel) -> bool:
    try:
        await channel.stub(cluster_pb2_grpc.ClusterStub).GetLeader(
            cluster_pb2.LeaderRequest(), timeout=_PROBE_SECONDS, metadata=channel.metadata
        )
    except grpc.aio.AioRpcError as error:
        return came_from_server(error)
    return True
