"""Admission on a cache that may lag: before a name is refused as unknown, etcd itself is asked for it.

So an object that was created through one replica can be named through another at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.reading import PATIENCE_SECONDS, SnapshotCatalogue
from controlplane.cache.reflector import Cache
from controlplane.model.errors import NotFound
from controlplane.store import keys
from controlplane.store.kv import Store

R = TypeVar("R")

# An order names a packet, that names jobs, those name resources and targets.
_ROUNDS = 5


async def admitted(deps: ApiDependencies, admit: Callable[[SnapshotCatalogue], R]) -> R:
    """What `admit` returns, on a snapshot that holds every object it asks for and that exists.

    For a large request `admit` is called in a thread."""
    for _ in range(_ROUNDS):
        known = SnapshotCatalogue(deps.cache.snapshot)
        try:
            return await deps.offload.run(partial(admit, known))
        except NotFound:
            if not await _caught_up(deps.store, deps.cache, known):
                raise
    return await deps.offload.run(partial(admit, SnapshotCatalogue(deps.cache.snapshot)))


async def _caught_up(store: Store, cache: Cache, known: SnapshotCatalogue) -> bool:
    """Whether something that was missed is there after all; then the cache has reached it."""
    for folder, name in known.missed:
        value = await store.get(keys.config(folder, name))
        if value is not None:
            await cache.reached(value.mod_revision, PATIENCE_SECONDS)
            return True
    return False
