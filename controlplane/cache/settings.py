"""The settings as they stand in a snapshot. Absent or unreadable ones are the defaults; times are made to fit.

A field that is not sane is the default, and so is each field of what cannot be read at all: what else an operator chose
still holds. A pure function of the snapshot, so that every replica, and every replay, works by the same settings.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from controlplane.cache.snapshot import Snapshot
from controlplane.model import silence
from controlplane.model.errors import Broken
from controlplane.model.settings import DEFAULT, Settings
from controlplane.store import codec


def settings_of(snapshot: Snapshot) -> Settings:
    entry = snapshot.get("config", "settings")
    if entry is None:
        return DEFAULT
    found = entry.sound(Settings)
    return silence.fitting(found if found is not None else salvaged(entry.stored.value))


@lru_cache(maxsize=8)
def salvaged(raw: bytes) -> Settings:
    """What of these settings is sane, each field for itself; the rest are defaults."""
    try:
        stored: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return DEFAULT
    if not isinstance(stored, dict):
        return DEFAULT
    sane = {}
    for field in msgspec.structs.fields(Settings):
        if field.encode_name not in stored:
            continue
        alone = {"kind": "Settings", field.encode_name: stored[field.encode_name]}
        try:
            sane[field.name] = getattr(codec.decode(msgspec.json.encode(alone), Settings), field.name)
        except Broken:
            continue
    return Settings(**sane)
