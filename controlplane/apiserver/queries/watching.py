"""Watches: the present objects, `sync`, then changes, for as long as the client listens.

A slow consumer gets the latest state of each object instead of every state: only a mark per object waits for the
consumer, so the memory of a watch does not grow with the number of changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from controlplane.apiserver.authorisation import visible_owners
from controlplane.apiserver.call import Call
from controlplane.apiserver.fresh_reads import fresh
from controlplane.apiserver.queries.paging import TURN
from controlplane.apiserver.queries.views.object_view import Filter, ObjectView, shown, sound, veiled
from controlplane.cache.reflector import Cache, Delta

T = TypeVar("T")

PUT, DELETE, SYNC = "put", "delete", "sync"


class ObjectChange(NamedTuple, Generic[T]):
    """`key` names the object within its kind, '' for a sync; only a put has an `item`."""

    type: str
    revision: int
    key: str
    item: T | None


class ChangeMarks:
    """Marks the changed objects. A newer change moves its object to the end of the line."""

    def __init__(self, view: ObjectView[T], wanted: Filter) -> None:
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
        """The changes since the last call, at least one: (revision, whether the object was removed) by key."""
        await self._news.wait()
        self._news.clear()
        taken, self._changed = self._changed, {}
        return taken


class OwnerFeeds:
    """The marks of watches whose callers see the objects of some owners.

    Each change is judged once for all of these watches, and reaches those of the object's owner: a watch costs nothing
    for the work of others.
    """

    def __init__(self, cache: Cache, view: ObjectView[Any]) -> None:
        self._cache = cache
        self._view = view
        self._all: dict[ChangeMarks, None] = {}
        self._of_owner: dict[str, dict[ChangeMarks, None]] = {}
        self._stop: Callable[[], None] | None = None

    def join(self, marks: ChangeMarks, owners: frozenset[str]) -> Callable[[], None]:
        """The marks hear of changes from now on. Returns how to stop."""
        if self._stop is None:
            self._stop = self._cache.subscribe(self._hear, self._view.trees)
        self._all[marks] = None
        for owner in owners:
            self._of_owner.setdefault(owner, {})[marks] = None

        def leave() -> None:
            self._all.pop(marks, None)
            for owner in owners:
                feeds = self._of_owner.get(owner, {})
                feeds.pop(marks, None)
                if not feeds:
                    self._of_owner.pop(owner, None)
            if not self._all and self._stop is not None:
                self._stop()
                self._stop = None

        return leave

    def _hear(self, deltas: Sequence[Delta], revision: int) -> None:
        for delta in deltas:
            for marks in self._concerned(delta):
                marks.hear((delta,), revision)

    def _concerned(self, delta: Delta) -> Collection[ChangeMarks]:
        view, snapshot = self._view, self._cache.snapshot
        key = view.touched(delta, _EVERYTHING)
        if key is None:
            return ()
        owner = view.owner(snapshot, key)
        if owner is None:
            return self._all
        feeds = self._of_owner.get(owner, {})
        if delta.old is not None and delta.tree == next(iter(view.trees)):
            former = view.owner_of(snapshot, delta.old)
            if former != owner:
                return feeds | self._of_owner.get(former, {})
        return feeds


_EVERYTHING = Filter()


class ObjectWatches(Generic[T]):
    """The watches of one kind of objects."""

    def __init__(self, cache: Cache, view: ObjectView[T]) -> None:
        self._cache = cache
        self._view = view
        self._feeds = OwnerFeeds(cache, view)

    async def watch(self, call: Call, wanted: Filter) -> AsyncGenerator[ObjectChange[T], None]:
        """An object that the caller may not see is not there: it is `delete`d when it ceases to be visible."""
        cache, view = self._cache, self._view
        snapshot = await fresh(cache, call)
        owners = visible_owners(call.subject)
        wanted = replace(wanted, owners=owners)
        # The keys that a caller who sees some objects only was shown.
        told: set[str] | None = None if owners is None else set()
        feed = ChangeMarks(view, wanted)
        stop = cache.subscribe(feed.hear, view.trees) if owners is None else self._feeds.join(feed, owners)
        try:
            for position, key in enumerate(view.keys(snapshot, wanted, ""), 1):
                if position % TURN == 0:
                    await asyncio.sleep(0)
                seen = sound(view, snapshot, key) if shown(view, snapshot, key, owners) else None
                if seen is not None:
                    if told is not None:
                        told.add(key)
                    yield ObjectChange(PUT, seen.revision, key, veiled(view, seen.item, owners))
            yield ObjectChange(SYNC, snapshot.revision, "", None)
            del snapshot
            while True:
                for key, (revision, removed) in (await feed.take()).items():
                    visible = shown(view, cache.snapshot, key, owners)
                    seen = sound(view, cache.snapshot, key) if visible else None
                    if seen is not None:
                        if told is not None:
                            told.add(key)
                        yield ObjectChange(PUT, max(revision, seen.revision), key, veiled(view, seen.item, owners))
                    elif told is None:
                        if removed:
                            yield ObjectChange(DELETE, revision, key, None)
                    elif key in told and (removed or not visible):
                        told.discard(key)
                        yield ObjectChange(DELETE, revision, key, None)
        finally:
            stop()


async def following(
    cache: Cache, trees: Collection[str], concerns: Callable[[Delta], bool] = lambda delta: True
) -> AsyncGenerator[None, None]:
    """Yields at once, and again after each change in the trees which concerns the caller."""
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
