"""Watching a prefix from a revision on, without gaps and without duplicates.

The stream is resumed after every failure from the revision behind the last complete one. Fragments of one big
response are put together before anything of it is shown, so that a batch always holds whole revisions. A stream
that stays silent although it was asked for a sign of life is left for the next endpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Any, NamedTuple

import grpc
from aetcd import rpc

from controlplane.model.errors import Compacted, Unavailable
from controlplane.store.channel import Channels, translate
from controlplane.store.keys import after_prefix
from controlplane.store.transaction import Value

ASK_SECONDS = 2.0
SILENCE_SECONDS = 2.0
_PAUSE_SECONDS = 0.05


class Change(NamedTuple):
    """One key was put (value) or deleted (value None) at this revision."""

    key: str
    revision: int
    value: Value | None


class Batch(NamedTuple):
    """Whole revisions, in order; `revision` is the last of them."""

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


class _Line:
    """One watch call and when it was last heard of. A silent one is asked for its progress, and cut if it says nothing.

    Listening costs one read a response: who watches over the silence is a task of its own that wakes up every now and
    then, not a time-out around every read.
    """

    def __init__(self, channel: grpc.aio.Channel, heard: Callable[[], None]) -> None:
        self._call = rpc.WatchStub(channel).Watch()
        self._heard = heard
        self._responses = 0
        self._silent = False
        self._guard = asyncio.create_task(self._watch_over())

    async def open(self, prefix: str, from_revision: int) -> None:
        create = rpc.WatchCreateRequest(
            key=prefix.encode(), range_end=after_prefix(prefix), start_revision=from_revision, fragment=True
        )
        await self._write(rpc.WatchRequest(create_request=create))

    async def read(self) -> Any:
        """The next response; Unavailable when the stream ended or stayed silent."""
        try:
            response = await self._call.read()
        except asyncio.CancelledError:
            if self._silent:
                raise Unavailable("the watch stream stayed silent") from None
            raise
        if response is grpc.aio.EOF:
            raise Unavailable("the watch stream ended")
        self._responses += 1
        self._heard()
        return response

    async def _write(self, request: rpc.WatchRequest) -> None:
        try:
            await self._call.write(request)
        except asyncio.InvalidStateError:
            raise Unavailable("the watch stream is over") from None

    async def _watch_over(self) -> None:
        while True:
            seen = self._responses
            await asyncio.sleep(ASK_SECONDS)
            if seen != self._responses:
                continue
            try:
                await self._write(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))
            except (Unavailable, grpc.aio.AioRpcError):
                return  # the reader hears of it too
            await asyncio.sleep(SILENCE_SECONDS)
            if seen == self._responses:
                self._silent = True
                self._call.cancel()
                return

    async def close(self) -> None:
        self._guard.cancel()
        self._call.cancel()
        await asyncio.wait({self._guard})


async def _stream(
    channel: grpc.aio.Channel, prefix: str, from_revision: int, heard: Callable[[], None]
) -> AsyncGenerator[Batch, None]:
    line = _Line(channel, heard)
    try:
        await line.open(prefix, from_revision)
        parts: list[rpc.Event] = []
        while True:
            response = await line.read()
            if response.canceled:
                if response.compact_revision:
                    raise Compacted(response.cancel_reason or "compacted", revision=response.compact_revision)
                raise Unavailable(response.cancel_reason)
            if not response.events:
                continue
            parts.extend(response.events)
            if response.fragment:
                continue
            changes = changes_of(parts)
            yield Batch(changes[-1].revision, changes)
            parts = []
    finally:
        await line.close()


def changes_of(events: Iterable[rpc.Event]) -> tuple[Change, ...]:
    """Reads every field once: this is done for every key that anybody writes, on every replica."""
    changes: list[Change] = []
    # Tuples are made as such: the constructor of a NamedTuple is one more call for each of them.
    make = tuple.__new__
    for event in events:
        pair = event.kv
        key = pair.key.decode("utf-8", "replace")
        revision = pair.mod_revision
        value = None
        if not event.type:
            value = make(Value, (key, pair.value, pair.create_revision, revision, pair.lease))
        changes.append(make(Change, (key, revision, value)))
    return tuple(changes)
