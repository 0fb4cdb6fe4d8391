"""Which identities of orders were used before, as a snapshot shows it."""

from __future__ import annotations

from typing import NamedTuple

from controlplane.cache.snapshot import Snapshot
from controlplane.model import times
from controlplane.model.errors import Invalid
from controlplane.model.identities import Cleaned


class CleanedMark(NamedTuple):
    """The newest identity that was cleaned up, in milliseconds since 1970, and the revision of the record."""

    milliseconds: int = 0
    revision: int = 0


def cleaned(snapshot: Snapshot) -> CleanedMark:
    """What cannot be read says nothing, but has a revision to write something better over."""
    entry = snapshot.get("status", "cleaned")
    if entry is None:
        return CleanedMark()
    return CleanedMark(milliseconds_of(entry.sound(Cleaned)), entry.revision)


def milliseconds_of(record: Cleaned | None) -> int:
    try:
        return int(times.parse(record.through, "through").timestamp() * 1000) if record is not None else 0
    except (Invalid, OverflowError, ValueError):
        return 0


def was_deleted(snapshot: Snapshot, order: str) -> bool:
    """Whether the order was there and its user deleted it; the leader may not have noted that yet."""
    if snapshot.get("config/orders", order) is not None:
        return False
    return snapshot.get("status/deleted", order) is not None or snapshot.get("status/orders", order) is not None
