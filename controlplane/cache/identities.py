"""Identities of orders that were used before, according to a snapshot."""

from __future__ import annotations

from typing import NamedTuple

from controlplane.cache.snapshot import Snapshot
from controlplane.model import times
from controlplane.model.cleaned_orders import Cleaned
from controlplane.model.errors import Invalid
from controlplane.store import keys


class CleanedMark(NamedTuple):
    """The newest identity that was cleaned up, in milliseconds since 1970, and the revision of the record."""

    milliseconds: int = 0
    revision: int = 0


def cleaned(snapshot: Snapshot) -> CleanedMark:
    """An unreadable record counts as none, but has a revision, so that a new record can replace it."""
    entry = snapshot.single(keys.CLEANED)
    if entry is None:
        return CleanedMark()
    return CleanedMark(milliseconds_of(entry.readable()), entry.revision)


def milliseconds_of(record: Cleaned | None) -> int:
    try:
        return int(times.parse(record.through, "through").timestamp() * 1000) if record is not None else 0
    except (Invalid, OverflowError, ValueError):
        return 0


def was_deleted(snapshot: Snapshot, order: str) -> bool:
    """Whether the order existed and its user deleted the order; the leader may not have recorded the deletion yet."""
    if snapshot.has(keys.ORDERS, order):
        return False
    return snapshot.has(keys.DELETED_ORDERS, order) or snapshot.has(keys.ORDER_STATUS, order)
