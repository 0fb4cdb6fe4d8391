"""Reading all the history that etcd still has, once, through whatever listens.

The head is read first and is where the reading stops, so that a busy system does not keep it going. When history is
compacted under the reading, it starts over with a fresh listener: one that missed a revision knows nothing.
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
from controlplane.store.watch import Batch, watch
from controlplane.verify import history
from controlplane.verify.p8_cache import Listing
from controlplane.verify.suspicion import Suspicions
from controlplane.verify.verdict import Listener

_TRIES = 5
# Longer than the watch itself takes to find a dead stream and to open the next.
_SILENCE_SECONDS = 6.0
_PATIENCE = 5

L = TypeVar("L", bound=Listener)


@dataclass(frozen=True, slots=True)
class Span:
    first: int
    last: int


Progress = Callable[[int, Span], None]


async def read(store: Store, make: Callable[[], L], progress: Progress = lambda revision, span: None) -> tuple[Span, L]:
    """The revisions that were read, and who listened to them; Compacted when history goes faster than this."""
    for left in reversed(range(_TRIES)):
        listener = make()
        try:
            return await _read(store, listener, progress), listener
        except Compacted:
            if not left:
                raise
    raise AssertionError("the last try raises")


async def _read(store: Store, listener: Listener, progress: Progress) -> Span:
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


async def _batches(store: Store, span: Span) -> AsyncIterator[Batch]:
    """Up to the last revision. Other people's keys have revisions too, which this watch never delivers."""
    reached, silent = span.first, 0
    newest = await _newest(store, span.last)
    batches = watch(store.channels, keys.ROOT, span.first + 1)
    waiting: asyncio.Task[Batch] | None = None
    try:
        while reached < span.last:
            waiting = waiting or asyncio.ensure_future(anext(batches))
            if not (await asyncio.wait({waiting}, timeout=_SILENCE_SECONDS))[0]:
                silent += 1
                if reached >= newest:
                    return
                if silent == _PATIENCE:
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
    """The newest revision of a key that is there: history is not complete before it."""
    newest = 0
    async for page in store.pages(revision=revision, keys_only=True):
        newest = max([newest, *(value.mod_revision for value in page.values)])
    return newest


async def follow(store: Store, listener: Listener, after: int, until: Callable[[], bool], seconds: float) -> bool:
    """Feeds what happens after that revision until the listener has heard enough; False when the time was up first."""
    with suppress(TimeoutError, Compacted):
        await _follow(store, listener, after, until, seconds)
    return until()


async def _follow(store: Store, listener: Listener, after: int, until: Callable[[], bool], seconds: float) -> None:
    """Returns when the listener has heard enough; TimeoutError when the time was up first."""
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
    """Listens to what happens after history for as long as a suspicion needs; not at all when there is none.

    `listening` is told before, how long that may take.
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
            # A suspicion that changed may need more time than it did.
            pass
        except Compacted:
            suspicions.give_up("history was compacted meanwhile")
        left = suspicions.left(clock.monotonic())


async def newest(store: Store) -> int:
    """The newest revision of all keys that are there now."""
    return await _newest(store, await store.revision())


async def listing(store: Store, revision: int) -> Listing:
    """What a linearisable list of all keys at that revision says; Compacted when it is too old."""
    found = Listing()
    async for page in store.pages(revision=revision, keys_only=True):
        found.add(page.values)
    return found
