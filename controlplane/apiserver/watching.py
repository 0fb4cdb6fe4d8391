"""Watches: what is there, `sync`, then changes, for as long as the client listens.

A slow consumer gets the latest state of each object instead of every state: what waits for it is one note per
object. Nothing is lost that matters, and nothing grows with the number of changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from typing import Any

from controlplane.apiserver.guard import Context
from controlplane.apiserver.reading import fresh
from controlplane.apiserver.views.view import Filter, View, sound
from controlplane.cache.reflector import Cache, Delta

PUT, DELETE, SYNC = "put", "delete", "sync"


class Feed:
    """Notes which objects changed. The newest change of an object moves it to the end of the line."""

    def __init__(self, view: View, wanted: Filter) -> None:
        self._view = view
        self._wanted = wanted
        self._changed: dict[str, tuple[int, bool]] = {}
        self._news = asyncio.Event()

    def hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        for delta in deltas:
            key = self._view.touched(delta, self._wanted)
            if key is not None:
                _, removed = self._changed.pop(key, (0, False))
                self._changed[key] = (delta.revision, removed or self._view.removes(delta))
                self._news.set()

    async def take(self) -> dict[str, tuple[int, bool]]:
        """What changed since the last time, at least one: (revision, whether the object was removed) by key."""
        await self._news.wait()
        self._news.clear()
        taken, self._changed = self._changed, {}
        return taken


async def watch(
    cache: Cache, view: View, event: Any, request: Any, context: Context, *, wanted: Filter | None = None
) -> AsyncGenerator[Any, None]:
    """Events of the given message type."""
    wanted = wanted or Filter(name=request.name, order=request.order, target=request.target)
    snapshot = await fresh(cache, request.min_revision, context)
    feed = Feed(view, wanted)
    stop = cache.subscribe(feed.hear, view.trees)
    try:
        for key in view.keys(snapshot, wanted, ""):
            found = sound(view, snapshot, key)
            if found is not None:
                yield event(type=PUT, revision=found[1], object=found[0])
        yield event(type=SYNC, revision=snapshot.revision)
        del snapshot
        while True:
            for key, (revision, removed) in (await feed.take()).items():
                found = sound(view, cache.snapshot, key)
                if found is not None:
                    yield event(type=PUT, revision=max(revision, found[1]), object=found[0])
                elif removed:
                    yield event(type=DELETE, revision=revision, object=view.bare(key))
    finally:
        stop()


async def following(
    cache: Cache, trees: Collection[str], concerns: Callable[[Delta], bool] = lambda delta: True
) -> AsyncGenerator[None, None]:
    """Yields at once, and then each time after something in the trees that concerns the caller has changed."""
    news = asyncio.Event()
    news.set()

    def hear(deltas: Sequence[Delta], _revision: int) -> None:
        if any(concerns(delta) for delta in deltas):
            news.set()

    stop = cache.subscribe(hear, trees)
    try:
        while True:
            await news.wait()
            news.clear()
            yield
    finally:
        stop()
