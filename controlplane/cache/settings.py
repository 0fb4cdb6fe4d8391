"""The settings as they stand in a snapshot. Absent or unreadable ones are the defaults."""

from __future__ import annotations

from controlplane.cache.snapshot import OTHER, Snapshot
from controlplane.model.settings import DEFAULT, Settings
from controlplane.store import keys


def settings_of(snapshot: Snapshot) -> Settings:
    entry = snapshot.get(OTHER, keys.SETTINGS)
    return (entry.sound(Settings) if entry is not None else None) or DEFAULT
