"""What the leader leaves out, as it stands in a snapshot: the keys whose handling fails at the moment."""

from __future__ import annotations

from controlplane.cache.snapshot import Snapshot
from controlplane.model.isolation import Isolated, Isolation
from controlplane.store import keys


def isolation_of(snapshot: Snapshot) -> Isolation | None:
    """None when nothing is left out, or the record cannot be read."""
    entry = snapshot.get(*keys.ISOLATED_PLACE)
    return entry.sound(Isolation) if entry is not None else None


def isolated_in(snapshot: Snapshot, kind: str, name: str, part: str = "") -> Isolated | None:
    """What the leader says of this object, if it is left out, by that component if one is named."""
    record = isolation_of(snapshot)
    if record is None:
        return None
    for key in record.keys:
        if (key.about.kind, key.about.name) == (kind, name) and part in ("", key.part):
            return key
    return None
