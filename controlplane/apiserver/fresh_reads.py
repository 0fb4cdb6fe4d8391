"""Reading from the replica's cache: as new as the client asks for, and with the key of an unreadable value."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from controlplane.apiserver.call import Call
from controlplane.cache.reflector import Cache
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.errors import Broken, Invalid
from controlplane.model.order import OrderStatus
from controlplane.store import keys

S = TypeVar("S", bound=msgspec.Struct)

PATIENCE_SECONDS = 5.0


async def fresh(cache: Cache, call: Call) -> Snapshot:
    """A snapshot with the call's minimum revision; Unavailable when the cache does not reach the revision in time."""
    if call.min_revision < 0:
        raise Invalid("min_revision", f"must not be negative, but is {call.min_revision}")
    wanted = max(call.min_revision, 1)
    if wanted > cache.revision:
        left = call.seconds_left()
        await cache.reached(wanted, PATIENCE_SECONDS if left is None else min(PATIENCE_SECONDS, left))
    return cache.snapshot


def object_of(entry: Entry[S]) -> S:
    """The entry's object; Broken, with its key, for an unreadable value."""
    try:
        return entry.object()
    except Broken as error:
        raise Broken(f"what is stored at {entry.stored.key} cannot be read: {error}") from None


def read_once(entry: Entry[S]) -> S:
    """Like `object_of`, without keeping the decoded object: for objects which are many and seldom read."""
    try:
        return entry.read()
    except Broken as error:
        raise Broken(f"what is stored at {entry.stored.key} cannot be read: {error}") from None


def order_status(snapshot: Snapshot, identity: str) -> OrderStatus | None:
    """The leader's status of the order; None when none is readable."""
    entry = snapshot.get(keys.ORDER_STATUS, identity)
    try:
        return entry.read() if entry is not None else None
    except Broken:
        return None


def why_not_ready(cache: Cache) -> str:
    """Why this replica cannot serve; empty when it can: the cache is filled, and not too old."""
    if not cache.synced:
        return "the cache has not been filled from etcd yet"
    if cache.is_stale:
        return f"the cache is {cache.age_seconds:.0f} s old: no sign of life from a quorum of etcd"
    return ""
