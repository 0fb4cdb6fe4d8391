"""The candidate key: entering the queue, and ending the term of a leader that is gone.

The key is etcd's own election recipe, `election/<lease-hex>` on the candidate's lease. A term is ended by deleting the
leader's key and noting that in the own key, in one transaction that compares both, so that a candidate with an old
view ends nothing and every replica sees who ended what; the leader's lease is revoked behind it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from controlplane.aio.clock import Clock
from controlplane.election.view import CandidateEntry
from controlplane.model import errors
from controlplane.model.leadership import Candidate, TermEnd
from controlplane.store import codec, keys
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, absent, delete, get, mod_is, put

_RETRY_SECONDS = 0.05
_REVOKE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Seat:
    """A place in the queue; `epoch` is the create revision of its key."""

    key: str
    lease: int
    epoch: int


async def enter(store: Store, candidate: Candidate, lease: int, clock: Clock, *, patience_seconds: float) -> Seat:
    """Repeats until etcd answers: the key is this lease's alone, so whoever made it, it is this candidate's."""
    key = keys.candidate(lease)
    item = Item((absent(key),), (put(key, codec.encode(candidate), lease=lease),), (get(key),))
    while True:
        try:
            outcome = await store.commit(item, timeout=patience_seconds)
        except (errors.Unavailable, errors.OutcomeUnknown):
            await clock.sleep(_RETRY_SECONDS)
            continue
        except errors.NotFound:
            raise errors.Deposed("the lease was gone before the candidate key was there") from None
        if outcome.succeeded:
            return Seat(key, lease, outcome.revision)
        found = outcome.found[0]
        if found is not None:
            return Seat(key, lease, found.create_revision)


async def end_term(
    store: Store, own: CandidateEntry, leader: CandidateEntry, end: TermEnd, *, patience_seconds: float
) -> bool:
    """False when etcd refused: the leader's key or the own one is not what the view shows."""
    note = msgspec.structs.replace(own.candidate, ended=end)
    item = Item(
        (mod_is(leader.key, leader.mod_revision), mod_is(own.key, own.mod_revision)),
        (delete(leader.key), put(own.key, codec.encode(note), lease=own.lease)),
    )
    try:
        outcome = await store.commit(item, timeout=patience_seconds)
    except (errors.Unavailable, errors.OutcomeUnknown):
        # Also when etcd has no room for the note: revoking the lease needs none.
        return True
    except errors.NotFound:
        return False
    return outcome.succeeded


async def remove(
    store: Store, own: CandidateEntry, leader: CandidateEntry, dead: CandidateEntry, *, patience_seconds: float
) -> bool:
    """Takes a dead standby out of the queue; False when etcd refused, as it does once that standby leads."""
    compares = tuple(mod_is(entry.key, entry.mod_revision) for entry in (own, leader, dead))
    try:
        outcome = await store.commit(Item(compares, (delete(dead.key),)), timeout=patience_seconds)
    except (errors.Unavailable, errors.OutcomeUnknown):
        return False
    return outcome.succeeded


async def revoke(store: Store, lease: int) -> bool:
    """Whether the lease is gone. Tries for a bounded time; a lease that cannot be revoked ends by itself."""
    try:
        async with asyncio.timeout(_REVOKE_SECONDS):
            await store.revoke(lease)
    except errors.NotFound:
        return True
    except (TimeoutError, errors.Unavailable, errors.OutcomeUnknown):
        return False
    return True
