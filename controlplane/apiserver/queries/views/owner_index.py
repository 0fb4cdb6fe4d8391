"""The names of objects by owner, kept current from the cache's changes.

A caller who may see the objects of some owners pays for those only. Names with the same front share a bucket, so that a
page sorts its own buckets instead of a million names: identities begin with their time, and those of about half a
minute have the same front.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from controlplane.cache import peek
from controlplane.cache.reflector import Cache, Delta
from controlplane.cache.snapshot import Entry
from controlplane.store import keys
from controlplane.store.keys import Tree

# 10 characters of an identity are its time; the last three of them stand for 32.8 seconds.
_FRONT = 7


class OwnerIndex:
    """The names of a tree with one part, whose objects have owners."""

    def __init__(self, cache: Cache, tree: Tree[Any]) -> None:
        self._of_owner: dict[str, SortedNames] = {}
        for entry in cache.snapshot.all(tree):
            self._add(entry)
        cache.subscribe(self._hear, (tree,))

    def after(self, key: str, owners: frozenset[str]) -> Iterator[str]:
        """Sorted names behind the key, of these owners' objects."""
        return heapq.merge(*(self._of_owner[owner].after(key) for owner in owners if owner in self._of_owner))

    def of_owners(self, owners: frozenset[str]) -> list[str]:
        """The names of these owners' objects, in any order."""
        return [name for owner in owners if owner in self._of_owner for name in self._of_owner[owner].names()]

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        for delta in deltas:
            if delta.old is not None and delta.new is not None and peek.owner(delta.old) == peek.owner(delta.new):
                continue
            if delta.old is not None:
                self._remove(delta.old)
            if delta.new is not None:
                self._add(delta.new)

    def _add(self, entry: Entry[Any]) -> None:
        owner = peek.owner(entry)
        names = self._of_owner.get(owner)
        if names is None:
            names = self._of_owner[owner] = SortedNames()
        names.add(entry.parts[0])

    def _remove(self, entry: Entry[Any]) -> None:
        owner = peek.owner(entry)
        names = self._of_owner.get(owner)
        if names is not None:
            names.remove(entry.parts[0])
            if not names:
                del self._of_owner[owner]


class OrderIndex(OwnerIndex):
    """The identities of all orders too: there are too many of them to be sorted for each page."""

    def __init__(self, cache: Cache) -> None:
        self._all = SortedNames()
        super().__init__(cache, keys.ORDERS)

    def all_after(self, key: str) -> Iterator[str]:
        return self._all.after(key)

    def _add(self, entry: Entry[Any]) -> None:
        self._all.add(entry.parts[0])
        super()._add(entry)

    def _remove(self, entry: Entry[Any]) -> None:
        self._all.remove(entry.parts[0])
        super()._remove(entry)


class SortedNames:
    def __init__(self) -> None:
        self._buckets: dict[str, set[str]] = {}
        self._fronts: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._fronts)

    def after(self, key: str) -> Iterator[str]:
        start = bisect.bisect_left(self._fronts, key[:_FRONT])
        for front in self._fronts[start:]:
            yield from sorted(name for name in self._buckets.get(front, ()) if name > key)

    def names(self) -> Iterator[str]:
        return chain.from_iterable(self._buckets.values())

    def add(self, name: str) -> None:
        front = name[:_FRONT]
        bucket = self._buckets.get(front)
        if bucket is None:
            bucket = self._buckets[front] = set()
            bisect.insort(self._fronts, front)
        bucket.add(name)

    def remove(self, name: str) -> None:
        front = name[:_FRONT]
        bucket = self._buckets.get(front, set())
        bucket.discard(name)
        if not bucket and front in self._buckets:
            del self._buckets[front]
            self._fronts.remove(front)
