"""Watching a prefix from a revision on, without gaps and without duplicates.

The stream is resumed after every failure from the revision behind the last complete one. Fragments of one big
response are put together before anything of it is shown, so that a batch always holds whole revisions. A stream
that stays silent although it was asked for a sign of life is left for the next endpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

import grpc
from aetcd import rpc

from controlplane.model.errors import Compacted, Unavailable
from controlplane.store.channel import Channels, translate
from controlplane.store.keys import after_prefix
from controlplane.store.transaction import Value, value_of

ASK_SECONDS = 2.0
SILENCE_SECONDS = 2.0
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Change:
    """One key was put (value) or deleted (value None) at this revision."""

    key: str
    revision: int
    value: Value | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Whole revisions, in order; `revision` is the last of them. `up` is False once when the stream was lost."""

    revision: int
    changes: tuple[Change, ...]


async def watch(
    channels: Channels, prefix: str, from_revision: int, heard: Callable[[], None] = lambda: None
) -> AsyncGenerator[Batch, None]:
    """Endless; raises Compacted when `from_revision` or the place to resume at is gone: relist.

    `heard` is called for every sign of life of the stream, also when nothing changes.
    """
    following = from_revision
    while True:
        channel = channels.current()
        try:
            async with aclosing(_stream(channel, prefix, following, heard)) as stream:
                async for batch in stream:
                    following = batch.revision + 1
                    yield batch
        except grpc.aio.AioRpcError as error:
            translated = translate(error, applies=False)
            if isinstance(translated, Compacted):
                raise translated from None
        except Unavailable:
            pass
        channels.leave(channel)
        await asyncio.sleep(_PAUSE_SECONDS)


async def _stream(
    channel: grpc.aio.Channel, prefix: str, from_revision: int, heard: Callable[[], None]
) -> AsyncGenerator[Batch, None]:
    call = rpc.WatchStub(channel).Watch()
    try:
        create = rpc.WatchCreateRequest(
            key=prefix.encode(), range_end=after_prefix(prefix), start_revision=from_revision, fragment=True
        )
        await call.write(rpc.WatchRequest(create_request=create))
        parts: list[rpc.Event] = []
        while True:
            response = await _next(call)
            if response.canceled:
                if response.compact_revision:
                    raise Compacted(response.cancel_reason or "compacted", revision=response.compact_revision)
                raise Unavailable(response.cancel_reason)
            heard()
            if not response.events:
                continue
            parts.extend(response.events)
            if response.fragment:
                continue
            yield Batch(parts[-1].kv.mod_revision, tuple(_change(event) for event in parts))
            parts = []
    finally:
        call.cancel()


async def _next(call: grpc.aio.StreamStreamCall[rpc.WatchRequest, rpc.WatchResponse]) -> rpc.WatchResponse:
    """The next response; a silent stream is asked for its progress, and left when it does not answer."""
    reading = asyncio.ensure_future(call.read())
    try:
        for patience in (ASK_SECONDS, SILENCE_SECONDS):
            done, _ = await asyncio.wait({reading}, timeout=patience)
            if done:
                response = reading.result()
                if response is grpc.aio.EOF:
                    raise Unavailable("the watch stream ended")
                return response
            if patience is ASK_SECONDS:
                await call.write(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))
        raise Unavailable("the watch stream stayed silent")
    finally:
        if not reading.done():
            call.cancel()
            await asyncio.wait({reading})
        if reading.done() and not reading.cancelled():
            reading.exception()


def _change(event: rpc.Event) -> Change:
    if event.type == event.DELETE:
        return Change(event.kv.key.decode(errors="replace"), event.kv.mod_revision, None)
    value = value_of(event.kv)
    return Change(value.key, value.mod_revision, value)
