"""etcd's history, read once from its oldest revision to its head, and passed to a listener.

The head is read first and ends the reading, so that a busy system does not prolong it. When history is compacted
meanwhile, reading starts over with a fresh listener: a listener that missed a revision is worthless.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from controlplane.aio.clock import Clock
from controlplane.model.errors import Compacted, Unavailable
from controlplane.store import keys
from controlplane.store.kv import Store
from controlplane.store.maintenance import oldest
from controlplane.store.watch import WatchBatch, watch
from controlplane.verify import history
from controlplane.verify.p8_cache import Listing
from controlplane.verify.promise_verdicts import HistoryListener
from controlplane.verify.suspicion import Suspicions

_TRIES = 5
# Longer than a watch takes to detect a dead stream and to open the next.
_SILENCE_SECONDS = 6.0
_MOST_SILENCES = 5

L = TypeVar("L", bound=HistoryListener)


@dataclass(frozen=True, slots=True)
class Span:
    first: int
    last: int


Progress = Callable[[int, Span], None]


async def read(store: Store, make: Callable[[], L], progress: Progress = lambda revision, span: None) -> tuple[Span, L]:
    """The revisions that were read, and their listener; Compacted when compaction outruns the reading five times."""
    for left in reversed(range(_TRIES)):
        listener = make()
        try:
            return await _read(store, listener, progress), listener
        except Compacted:
            if not left:
                raise
    raise AssertionError("the last try raises")


async def _read(store: Store, listener: HistoryListener, progress: Progress) -> Span:
    span = Span(await oldest(store), await store.revision())
    async for page in store.pages(revision=span.first):
        listener.start([history.of_value(value) for value in page.values])
    async for batch in _batches(store, span):
        for revision, changes in history.by_revision(batch.changes):
            if revision > span.last:
                return span
            listener.change(revision, changes)
        progress(batch.revision, span)
    return span


async def _batches(store: Store, span: Span) -> AsyncIterator[WatchBatch]:
    """Batches up to the last revision. Keys of other applications have revisions that this watch never delivers."""
    reached, silent = span.first, 0
    newest = await _newest(store, span.last)
    batches = watch(store.channels, keys.ROOT, span.first + 1)
    waiting: asyncio.Task[WatchBatch] | None = None
    try:
        while reached < span.last:
            waiting = waiting or asyncio.ensure_future(anext(batches))
            if not (await asyncio.wait({waiting}, timeout=_SILENCE_SECONDS))[0]:
                silent += 1
                if reached >= newest:
                    return
                if silent == _MOST_SILENCES:
                    raise Unavailable(f"etcd's watch stopped at revision {reached} of {span.last}")
                continue
            batch, waiting, silent = waiting.result(), None, 0
            reached = batch.revision
            yield batch
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.wait({waiting})
        await batches.aclose()


async def _newest(store: Store, revision: int) -> int:
    """The newest revision of a present key: history is incomplete before this revision is read."""
    newest = 0
    async for page in store.pages(revision=revision, keys_only=True):
        newest = max([newest, *(value.mod_revision for value in page.values)])
    return newest


async def follow(
    store: Store, listener: HistoryListener, after: int, until: Callable[[], bool], seconds: float
) -> bool:
    """Feeds later changes to the listener until `until` holds; False when the time was up first."""
    with suppress(TimeoutError, Compacted):
        await _follow(store, listener, after, until, seconds)
    return until()


async def _follow(
    store: Store, listener: HistoryListener, after: int, until: Callable[[], bool], seconds: float
) -> None:
    """Returns when `until` holds; TimeoutError when the time was up first."""
    async with asyncio.timeout(seconds):
        if until():
            return
        async for batch in watch(store.channels, keys.ROOT, after + 1):
            for revision, changes in history.by_revision(batch.changes):
                listener.change(revision, changes)
            if until():
                return


async def settle(
    store: Store, suspicions: Suspicions, clock: Clock, listening: Callable[[float], None] = lambda seconds: None
) -> None:
    """Watches etcd after the end of history for as long as a suspicion needs; not at all without a suspicion.

    `listening` is called first, with the longest time in seconds.
    """
    suspicions.begin(clock.monotonic())
    left = suspicions.left(clock.monotonic())
    if left:
        listening(left)
    while left:
        try:
            after = suspicions.present.revision
            await _follow(store, suspicions, after, lambda: not suspicions.left(clock.monotonic()), left)
        except TimeoutError:
            # A suspicion that changed may need more time than before.
            pass
        except Compacted:
            suspicions.give_up("history was compacted meanwhile")
        left = suspicions.left(clock.monotonic())


async def newest(store: Store) -> int:
    """The newest revision of all present keys."""
    return await _newest(store, await store.revision())


async def listing(store: Store, revision: int) -> Listing:
    """The digest of a linearisable list of all keys at the revision; Compacted when the revision is too old."""
    digest = Listing()
    async for page in store.pages(revision=revision, keys_only=True):
        digest.add(page.values)
    return digest
