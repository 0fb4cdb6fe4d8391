"""The settings: a single object which always exists, with defaults until a user writes settings."""

from __future__ import annotations

from controlplane.apiserver import large_requests
from controlplane.apiserver.admission import settings_admission as admission
from controlplane.apiserver.api_ports import Reads, Writes
from controlplane.apiserver.call import Call
from controlplane.apiserver.commands.guarded_writes import write_until_answered
from controlplane.cache.effective_settings import salvaged
from controlplane.cache.snapshot import Snapshot
from controlplane.model.errors import Broken, Conflict
from controlplane.model.settings import DEFAULT, Settings
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item, Value

_TRIES = 5


class SettingsStore:
    def __init__(self, reads: Reads, writes: Writes) -> None:
        self._reads = reads
        self._writes = writes

    def read(self, snapshot: Snapshot) -> tuple[Settings, int]:
        """The effective settings and the revision of the stored settings, 0 for the defaults."""
        entry = snapshot.single(keys.SETTINGS)
        if entry is None:
            return DEFAULT, 0
        settings = entry.readable()
        return (settings if settings is not None else salvaged(entry.stored.value)), entry.revision

    async def update(self, _call: Call, settings: Settings, revision: int) -> tuple[Settings, int]:
        """Replaces all settings: absent fields take their defaults. The same settings again are no write."""
        new = await large_requests.run(lambda: admission.admit(settings))
        for _ in range(_TRIES):
            there = await self._reads.store.get(keys.SETTINGS)
            if _current(there) == new:
                return new, there.mod_revision if there is not None else self._reads.cache.revision
            stored = there.mod_revision if there is not None else 0
            if revision not in (0, stored):
                raise Conflict(f"the settings were changed at revision {stored}, after {revision}; read them again")
            raw = codec.rewrite(there.value, new) if there is not None else codec.encode(new)
            item = Item((transaction.mod_is(keys.SETTINGS, stored),), (transaction.put(keys.SETTINGS, raw),))
            outcome, _ = await write_until_answered(self._writes, item)
            if outcome.succeeded:
                return new, outcome.revision
        raise Conflict("the settings keep being changed by others; try again")


def _current(there: Value | None) -> Settings | None:
    try:
        return DEFAULT if there is None else codec.read(there, Settings)
    except Broken:
        return None
