"""The settings in effect at a snapshot: defaults where settings are absent or insane; times made to fit each other.

An insane field falls back to its default, and so does each unreadable field: all other choices of an operator still
hold. A pure function of the snapshot, so that every replica and every replay works with the same settings.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from controlplane.cache.snapshot import Snapshot
from controlplane.model import silence
from controlplane.model.errors import Broken
from controlplane.model.settings import DEFAULT, Settings
from controlplane.store import codec, keys


def settings_of(snapshot: Snapshot) -> Settings:
    entry = snapshot.single(keys.SETTINGS)
    if entry is None:
        return DEFAULT
    settings = entry.readable()
    return silence.fitting(settings if settings is not None else salvaged(entry.stored.value))


@lru_cache(maxsize=8)
def salvaged(raw: bytes) -> Settings:
    """The sane fields of these settings; the other fields are defaults."""
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
