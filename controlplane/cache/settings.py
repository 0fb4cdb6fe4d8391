"""The settings as they stand in a snapshot. Absent or unreadable ones are the defaults; times are made to fit."""

from __future__ import annotations

from controlplane.cache.snapshot import Snapshot
from controlplane.model import silence
from controlplane.model.settings import DEFAULT, Settings


def settings_of(snapshot: Snapshot) -> Settings:
    entry = snapshot.get("config", "settings")
    found = entry.sound(Settings) if entry is not None else None
    return silence.fitting(found) if found is not None else DEFAULT
