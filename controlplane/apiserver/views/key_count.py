"""How many keys the cache holds, without counting them each time somebody asks."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.cache.reflector import Cache, Delta


class KeyCount:
    def __init__(self, cache: Cache) -> None:
        self.keys = sum(1 for _ in cache.snapshot.everything())
        cache.subscribe(self._hear)

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        for delta in deltas:
            self.keys += (delta.new is not None) - (delta.old is not None)
