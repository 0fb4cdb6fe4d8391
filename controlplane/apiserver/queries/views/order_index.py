"""The identities of all orders in order, kept current from the cache's changes.

Identities begin with their time, so identities of about half a minute share a bucket: a page sorts its own buckets, not
a million orders.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

from controlplane.cache.reflector import Cache, Delta
from controlplane.store import keys

# 10 characters of an identity are its time; the last three of them stand for 32.8 seconds.
_BUCKET = 7


class OrderIndex:
    def __init__(self, cache: Cache) -> None:
        self._buckets: dict[str, set[str]] = {}
        self._fronts: list[str] = []
        for name in cache.snapshot.names(keys.ORDERS):
            self._add(name)
        cache.subscribe(self._hear)

    def after(self, key: str) -> Iterator[str]:
        """Sorted identities behind the key."""
        start = bisect.bisect_left(self._fronts, key[:_BUCKET])
        for front in self._fronts[start:]:
            yield from sorted(name for name in self._buckets.get(front, ()) if name > key)

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        for delta in deltas:
            if delta.tree == keys.ORDERS and (delta.old is None) != (delta.new is None):
                self._add(delta.parts[0]) if delta.new is not None else self._remove(delta.parts[0])

    def _add(self, name: str) -> None:
        front = name[:_BUCKET]
        bucket = self._buckets.get(front)
        if bucket is None:
            bucket = self._buckets[front] = set()
            bisect.insort(self._fronts, front)
        bucket.add(name)

    def _remove(self, name: str) -> None:
        front = name[:_BUCKET]
        bucket = self._buckets.get(front, set())
        bucket.discard(name)
        if not bucket and front in self._buckets:
            del self._buckets[front]
            self._fronts.remove(front)
