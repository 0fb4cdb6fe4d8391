"""The identities of all orders in order, and those of each owner, kept current from the cache's changes.

Identities begin with their time, so identities of about half a minute share a bucket: a page sorts its own buckets, not
a million orders. A caller who may see the orders of some owners pays for those only.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterator, Sequence
from itertools import chain

from controlplane.cache import peek
from controlplane.cache.reflector import Cache, Delta
from controlplane.store import keys

# 10 characters of an identity are its time; the last three of them stand for 32.8 seconds.
_BUCKET = 7


class OrderIndex:
    def __init__(self, cache: Cache) -> None:
        self._all = SortedIdentities()
        self._of_owner: dict[str, SortedIdentities] = {}
        for entry in cache.snapshot.all(keys.ORDERS):
            self._add(entry.parts[0], peek.owner(entry))
        cache.subscribe(self._hear)

    def after(self, key: str, owners: frozenset[str] | None = None) -> Iterator[str]:
        """Sorted identities behind the key, of all orders or of these owners'."""
        if owners is None:
            return self._all.after(key)
        found = (self._of_owner[owner].after(key) for owner in owners if owner in self._of_owner)
        return heapq.merge(*found)

    def of_owners(self, owners: frozenset[str]) -> list[str]:
        """The identities of these owners' orders, in any order."""
        return [name for owner in owners if owner in self._of_owner for name in self._of_owner[owner].names()]

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        for delta in deltas:
            if delta.tree != keys.ORDERS:
                continue
            if delta.old is None and delta.new is not None:
                self._add(delta.parts[0], peek.owner(delta.new))
            elif delta.new is None and delta.old is not None:
                self._remove(delta.parts[0], peek.owner(delta.old))

    def _add(self, name: str, owner: str) -> None:
        self._all.add(name)
        identities = self._of_owner.get(owner)
        if identities is None:
            identities = self._of_owner[owner] = SortedIdentities()
        identities.add(name)

    def _remove(self, name: str, owner: str) -> None:
        self._all.remove(name)
        identities = self._of_owner.get(owner)
        if identities is not None:
            identities.remove(name)
            if not identities:
                del self._of_owner[owner]


class SortedIdentities:
    def __init__(self) -> None:
        self._buckets: dict[str, set[str]] = {}
        self._fronts: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._fronts)

    def after(self, key: str) -> Iterator[str]:
        start = bisect.bisect_left(self._fronts, key[:_BUCKET])
        for front in self._fronts[start:]:
            yield from sorted(name for name in self._buckets.get(front, ()) if name > key)

    def names(self) -> Iterator[str]:
        return chain.from_iterable(self._buckets.values())

    def add(self, name: str) -> None:
        front = name[:_BUCKET]
        bucket = self._buckets.get(front)
        if bucket is None:
            bucket = self._buckets[front] = set()
            bisect.insort(self._fronts, front)
        bucket.add(name)

    def remove(self, name: str) -> None:
        front = name[:_BUCKET]
        bucket = self._buckets.get(front, set())
        bucket.discard(name)
        if not bucket and front in self._buckets:
            del self._buckets[front]
            self._fronts.remove(front)
