"""Watching a prefix from a revision on, without gaps and without duplicates.

After every failure the stream is resumed behind the last complete revision. Fragments of a big response are put
together before any change is shown, so that a batch always holds whole revisions. A stream that stays silent when asked
for a sign of life is left for the next endpoint; so is the stream of a member that was left behind by the other
members: such a member may answer for ever, but all answers are old.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, suppress
from typing import Any, NamedTuple

import grpc
from aetcd import rpc

from controlplane.model.errors import Compacted, Unavailable
from controlplane.store.channel import HAS_LEADER, Channels, translate
from controlplane.store.keys import after_prefix
from controlplane.store.transaction import Value

ASK_SECONDS = 2.0
SILENCE_SECONDS = 2.0
_PAUSE_SECONDS = 0.05
# How often, and for how long each time, a member is asked for a revision of etcd before the member is left.
_LAG_ASKS = 2
_LAG_SECONDS = 0.5
# Older versions answer a request for progress ahead of changes that are still to be sent.
_IN_ORDER_SINCE = {(3, 4): 25, (3, 5): 8}


class Change(NamedTuple):
    """A key was put (value) or deleted (value None) at this revision."""

    key: str
    revision: int
    value: Value | None


class WatchBatch(NamedTuple):
    """Whole revisions, in order; `revision` is the last."""

    revision: int
    changes: tuple[Change, ...]


class WatchProgress:
    """Revisions that etcd is known to have, from outside of the stream: the stream has to come up to them.

    `shown` gives the revision that the follower has reached. `passed(revision, in_order)` tells the follower that the
    stream shows no change up to the revision; `in_order` says that all changes before were certainly delivered.
    """

    def __init__(self, shown: Callable[[], int] = lambda: 0, passed: Callable[[int, bool], None] | None = None) -> None:
        self.shown = shown
        self.passed = passed
        self.due = 0
        self.in_order: bool | None = None
        self._news = asyncio.Event()

    def expect(self, revision: int) -> None:
        """A quorum of etcd has this revision: the stream is asked for progress if it has not shown the revision."""
        self.due = max(self.due, revision)
        if self.due > self.shown():
            self._news.set()

    async def is_behind(self, seconds: float) -> bool:
        """True as soon as a due revision was not shown; False when no revision was expected for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()
        return self.due > self.shown()


async def watch(
    channels: Channels,
    prefix: str,
    from_revision: int,
    heard: Callable[[], None] = lambda: None,
    *,
    lookout: WatchProgress | None = None,
) -> AsyncGenerator[WatchBatch, None]:
    """Endless; raises Compacted when `from_revision`, or the revision to resume at, is gone: relist.

    `heard` is called for every sign of life of the stream, also without changes.
    """
    following = from_revision
    lookout = lookout or WatchProgress()
    while True:
        channel = channels.current()
        try:
            async with aclosing(_stream(_WatchCall(channel, heard, lookout), prefix, following)) as stream:
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


class _WatchCall:
    """A watch call, and when it was last heard of. A call is cut that answers nothing, or only old revisions.

    Listening costs a read per response: a separate task wakes up now and then to notice silence, instead of a time-out
    around every read.
    """

    def __init__(self, channel: grpc.aio.Channel, heard: Callable[[], None], lookout: WatchProgress) -> None:
        self._channel = channel
        self._call = rpc.WatchStub(channel).Watch(metadata=HAS_LEADER)
        self._heard = heard
        self._lookout = lookout
        lookout.in_order = None
        self._responses = self._changes = self._head = 0
        self._answered = asyncio.Event()
        self._cut = False
        self._guard = asyncio.create_task(self._watch_over())

    async def open(self, prefix: str, from_revision: int) -> None:
        create = rpc.WatchCreateRequest(
            key=prefix.encode(), range_end=after_prefix(prefix), start_revision=from_revision, fragment=True
        )
        await self._write(rpc.WatchRequest(create_request=create))

    async def read(self) -> Any:
        """The next response; Unavailable when the stream ended or was cut."""
        try:
            response = await self._call.read()
        except asyncio.CancelledError:
            # Both cutting the call and cancelling the reader cancel the read: only the reader's task tells these apart.
            reader = asyncio.current_task()
            if self._cut and not (reader is not None and reader.cancelling()):
                raise Unavailable("the watch stream stayed silent, or behind") from None
            raise
        if response is grpc.aio.EOF:
            raise Unavailable("the watch stream ended")
        self._responses += 1
        self._heard()
        return response

    def changed(self) -> None:
        """The last response holds changes."""
        self._changes += 1

    def progressed(self, revision: int) -> None:
        """The last response answers a request for progress."""
        self._head = max(self._head, revision)
        self._answered.set()
        if self._lookout.passed is not None:
            self._lookout.passed(revision, bool(self._lookout.in_order))

    async def _write(self, request: rpc.WatchRequest) -> None:
        try:
            await self._call.write(request)
        except asyncio.InvalidStateError:
            raise Unavailable("the watch stream is over") from None

    async def _watch_over(self) -> None:
        with suppress(Unavailable, grpc.aio.AioRpcError):  # the reader gets the same error
            while True:
                responses = self._responses
                if await self._lookout.is_behind(ASK_SECONDS):
                    alive = await self._shows(self._lookout.due)
                elif self._lookout.passed is not None:
                    # A quorum vouches for the stream while no revision is due, and newer versions of etcd give no sign
                    # of life to a watch that begins behind the newest revision.
                    alive = True
                else:
                    alive = responses != self._responses or await self._speaks()
                if not alive:
                    self._cut = True
                    self._call.cancel()
                    return

    async def _speaks(self) -> bool:
        """Whether any sign of life follows a request for a sign of life."""
        responses = self._responses
        await self._ask()
        await asyncio.sleep(SILENCE_SECONDS)
        return responses != self._responses

    async def _shows(self, due: int) -> bool:
        """Whether the member has the revision. While changes come, the member is alive and catching up."""
        if self._lookout.in_order is None:
            self._lookout.in_order = await _answers_in_order(self._channel)
        changes = self._changes
        for _ in range(_LAG_ASKS):
            self._answered.clear()
            await self._ask()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAG_SECONDS):
                    await self._answered.wait()
            if max(self._head, self._lookout.shown()) >= due or changes != self._changes:
                return True
            await asyncio.sleep(_LAG_SECONDS)
        return max(self._head, self._lookout.shown()) >= due or changes != self._changes

    async def _ask(self) -> None:
        await self._write(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))

    async def close(self) -> None:
        self._guard.cancel()
        self._call.cancel()
        await asyncio.wait({self._guard})


async def _answers_in_order(channel: grpc.aio.Channel) -> bool | None:
    """Whether this member answers a request for progress only after all earlier changes; None when unknown."""
    try:
        answer = await rpc.MaintenanceStub(channel).Status(rpc.StatusRequest(), timeout=_LAG_SECONDS)
        major, minor, patch = (int(part) for part in answer.version.partition("-")[0].split("."))
    except (grpc.aio.AioRpcError, ValueError):
        return None
    return patch >= _IN_ORDER_SINCE.get((major, minor), 0) and (major, minor) >= (3, 4)


async def _stream(line: _WatchCall, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch, None]:
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
                if not response.created and not parts:
                    line.progressed(response.header.revision)
                continue
            line.changed()
            parts.extend(response.events)
            if response.fragment:
                continue
            changes = changes_of(parts)
            yield WatchBatch(changes[-1].revision, changes)
            parts = []
    finally:
        await line.close()


def changes_of(events: Iterable[rpc.Event]) -> tuple[Change, ...]:
    """Reads every field once: called for every key of every change, on every replica."""
    changes: list[Change] = []
    # Plain tuples: the constructor of a NamedTuple costs another call per change.
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
