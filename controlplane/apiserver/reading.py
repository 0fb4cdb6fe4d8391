"""Reading from the replica's cache: as new as the client asks for, and clear about what cannot be read."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from controlplane.apiserver.admission.named import FOLDERS
from controlplane.apiserver.guard import Context
from controlplane.cache.reflector import Cache
from controlplane.cache.settings import settings_of
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.errors import Broken, Invalid
from controlplane.model.object import Named
from controlplane.model.settings import Settings
from controlplane.model.target import Target

S = TypeVar("S", bound=msgspec.Struct)
N = TypeVar("N", bound=Named)

PATIENCE_SECONDS = 5.0


async def fresh(cache: Cache, min_revision: int, context: Context | None = None) -> Snapshot:
    """A snapshot that contains the revision; Unavailable when the cache does not reach it in time."""
    if min_revision < 0:
        raise Invalid("min_revision", f"must not be negative, but is {min_revision}")
    wanted = max(min_revision, 1)
    if wanted > cache.revision:
        left = context.time_remaining() if context is not None else None
        await cache.reached(wanted, PATIENCE_SECONDS if left is None else min(PATIENCE_SECONDS, left))
    return cache.snapshot


def object_of(entry: Entry, kind: type[S]) -> S:
    """The entry's object; Broken, with its key, when what is stored cannot be read."""
    try:
        return entry.object(kind)
    except Broken as error:
        raise Broken(f"what is stored at {entry.stored.key} cannot be read: {error}") from None


def read_once(entry: Entry, kind: type[S]) -> S:
    """Like `object_of`, without keeping what was decoded: for what is many and seldom read."""
    try:
        return entry.read(kind)
    except Broken as error:
        raise Broken(f"what is stored at {entry.stored.key} cannot be read: {error}") from None


class SnapshotCatalogue:
    """What exists by one snapshot. `missed` are the keys that were asked for and are not there."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.missed: list[tuple[str, str]] = []

    @property
    def revision(self) -> int:
        return self._snapshot.revision

    def find(self, kind: type[N], name: str) -> N | None:
        folder = FOLDERS[kind]
        entry = self._snapshot.get(f"config/{folder}", name)
        if entry is None:
            self.missed.append((folder, name))
            return None
        return object_of(entry, kind)

    def settings(self) -> Settings:
        return settings_of(self._snapshot)


def gives_time_limits(snapshot: Snapshot) -> bool:
    """Whether some target gives a time limit to tasks whose job has none."""
    targets = (entry.sound(Target) for entry in snapshot.all("config/targets"))
    return any(target is not None and target.default_time_limit is not None for target in targets)
