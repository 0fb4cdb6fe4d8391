"""The settings: one object that always exists, with defaults while nobody wrote it."""

from __future__ import annotations

from controlplane.apiserver.admission import settings as admission
from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.repeating import insist
from controlplane.cache.settings import salvaged
from controlplane.cache.snapshot import Snapshot
from controlplane.model.errors import Broken, Conflict
from controlplane.model.settings import DEFAULT, Settings
from controlplane.store import codec, keys, places, transaction
from controlplane.store.transaction import Item, Value

_TRIES = 5


class SettingsStore:
    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    def read(self, snapshot: Snapshot) -> tuple[Settings, int]:
        """The settings and the revision they were written at, 0 for the defaults; those that count, where what is
        stored is not sane."""
        entry = snapshot.get("config", "settings")
        if entry is None:
            return DEFAULT, 0
        found = entry.sound(Settings)
        return (found if found is not None else salvaged(entry.stored.value)), entry.revision

    async def update(self, settings: Settings, revision: int) -> tuple[Settings, int]:
        """Replaces all of them: what is not said is the default. The same again is no write."""
        new = await self._deps.offload.run(lambda: admission.admit(settings))
        for _ in range(_TRIES):
            there = await self._deps.store.get(keys.SETTINGS)
            if _current(there) == new:
                return new, there.mod_revision if there is not None else self._deps.cache.revision
            found = there.mod_revision if there is not None else 0
            if revision not in (0, found):
                raise Conflict(f"the settings were changed at revision {found}, after {revision}; read them again")
            raw = codec.rewrite(there.value, new) if there is not None else codec.encode(new)
            item = Item((transaction.mod_is(keys.SETTINGS, found),), (transaction.put(keys.SETTINGS, raw),))
            outcome, _ = await insist(self._deps, item)
            if outcome.succeeded:
                return new, outcome.revision
        raise Conflict("the settings keep being changed by others; try again")


def _current(there: Value | None) -> Settings | None:
    try:
        return DEFAULT if there is None else places.read(there, Settings)
    except Broken:
        return None
