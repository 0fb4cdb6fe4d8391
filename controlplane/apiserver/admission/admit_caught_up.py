"""Admission on a cache which may lag: before a name is refused as unknown, etcd itself is asked for the name.

So an object created through one replica can be named through another at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from controlplane.apiserver import large_requests
from controlplane.apiserver.api_ports import Reads
from controlplane.apiserver.authorisation import OWNED, visible_owners
from controlplane.apiserver.fresh_reads import PATIENCE_SECONDS, object_of
from controlplane.cache import peek
from controlplane.cache.effective_settings import settings_of
from controlplane.cache.reflector import Cache
from controlplane.cache.snapshot import Snapshot
from controlplane.model.access import ANYONE, Subject
from controlplane.model.errors import NotFound
from controlplane.model.kinds import kind_of
from controlplane.model.object import Named
from controlplane.model.settings import Settings
from controlplane.store import keys
from controlplane.store.kv import Store

N = TypeVar("N", bound=Named)
R = TypeVar("R")

# An order names a packet, packets name jobs, jobs name resources and targets.
_ROUNDS = 5


class SnapshotCatalogue:
    """The objects of one snapshot that the subject may read. `missed` are the keys asked for without an object.

    Whoever may not read an object cannot use it either, and is told that there is none.
    """

    def __init__(self, snapshot: Snapshot, subject: Subject = ANYONE) -> None:
        self._snapshot = snapshot
        self._owners = visible_owners(subject)
        self.missed: list[tuple[str, str]] = []

    @property
    def revision(self) -> int:
        return self._snapshot.revision

    def find(self, kind: type[N], name: str) -> N | None:
        entry = self._snapshot.get(keys.tree_of(kind), name)
        if entry is None:
            self.missed.append((kind_of(kind).plural, name))
            return None
        # Targets are shared; secrets are used without being read.
        if self._owners is not None and kind_of(kind).word in OWNED and peek.owner(entry) not in self._owners:
            return None
        return object_of(entry)

    def settings(self) -> Settings:
        return settings_of(self._snapshot)


def gives_time_limits(snapshot: Snapshot) -> bool:
    """Whether a target gives a time limit to tasks of jobs without a limit."""
    return any(target.default_time_limit is not None for target in snapshot.objects(keys.TARGETS))


async def admit_caught_up(reads: Reads, subject: Subject, admit: Callable[[SnapshotCatalogue], R]) -> R:
    """The result of `admit` on a snapshot with every object that `admit` asks for and the subject may read.

    For a large request `admit` is called in a thread.
    """
    for _ in range(_ROUNDS):
        existing = SnapshotCatalogue(reads.cache.snapshot, subject)
        try:
            return await large_requests.run(partial(admit, existing))
        except NotFound:
            if not await _caught_up(reads.store, reads.cache, existing):
                raise
    return await large_requests.run(partial(admit, SnapshotCatalogue(reads.cache.snapshot, subject)))


async def _caught_up(store: Store, cache: Cache, existing: SnapshotCatalogue) -> bool:
    """Whether a missed object exists after all; then the cache has reached the object."""
    for folder, name in existing.missed:
        value = await store.get(keys.config(folder, name))
        if value is not None:
            await cache.reached(value.mod_revision, PATIENCE_SECONDS)
            return True
    return False
