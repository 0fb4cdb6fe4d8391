"""Keys that the leader leaves out at the moment because handling them fails, according to a snapshot."""

from __future__ import annotations

from controlplane.cache.snapshot import Snapshot
from controlplane.model.isolation import Isolated


def isolated_in(snapshot: Snapshot, kind: str, name: str, part: str = "") -> Isolated | None:
    """The isolation of this object, by the named component or by any."""
    record = snapshot.isolation()
    if record is None:
        return None
    for key in record.keys:
        if (key.about.kind, key.about.name) == (kind, name) and part in ("", key.part):
            return key
    return None
