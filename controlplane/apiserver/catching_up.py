"""Admission on a cache that may lag: before a name is refused as unknown, etcd itself is asked for it.

So an object that was created through one replica can be named through another at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from controlplane.apiserver.reading import PATIENCE_SECONDS, SnapshotCatalogue
from controlplane.cache.reflector import Cache
from controlplane.model.errors import NotFound
from controlplane.store import keys
from controlplane.store.kv import Store

R = TypeVar("R")

# An order names a packet, that names jobs, those name resources and targets.
_ROUNDS = 5


async def admitted(store: Store, cache: Cache, admit: Callable[[SnapshotCatalogue], R]) -> R:
    """What `admit` returns, on a snapshot that holds every object it asks for and that exists."""
    for _ in range(_ROUNDS):
        known = SnapshotCatalogue(cache.snapshot)
        try:
            return admit(known)
        except NotFound:
            if not await _caught_up(store, cache, known):
                raise
    return admit(SnapshotCatalogue(cache.snapshot))


async def _caught_up(store: Store, cache: Cache, known: SnapshotCatalogue) -> bool:
    """Whether something that was missed is there after all; then the cache has reached it."""
    for folder, name in known.missed:
        value = await store.get(keys.config(folder, name))
        if value is not None:
            await cache.reached(value.mod_revision, PATIENCE_SECONDS)
            return True
    return False
