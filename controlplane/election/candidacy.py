"""The candidate key: entering the queue, and ending the term of a leader that is gone.

The key follows etcd's own election recipe: `election/<lease-hex>` on the candidate's lease. A candidate ends a term by
deleting the leader's key and noting the end in its own key. The transaction compares both keys, so a candidate with
an old view ends no term, and every replica sees which candidate ended which term. The leader's lease is revoked
afterwards.
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
    """A place in the queue; `epoch` is the create revision of the candidate key."""

    key: str
    lease: int
    epoch: int


async def enter(store: Store, candidate: Candidate, lease: int, clock: Clock, *, patience_seconds: float) -> Seat:
    """Creates the candidate key; repeats until etcd answers.

    The key is named after the lease, so a key from an earlier try is this candidate's key too. Deposed when the lease
    is gone.
    """
    key = keys.candidate(lease)
    item = Item((absent(key),), (put(key, codec.encode(candidate), lease=lease),), (get(key),))
    while True:
        try:
            outcome = await store.commit(item, timeout=patience_seconds)
        except (errors.Unavailable, errors.OutcomeUnknown):
            await clock.sleep(_RETRY_SECONDS)
            continue
        except errors.NotFound:
            raise errors.Deposed("the lease ended before the candidate key was created") from None
        if outcome.succeeded:
            return Seat(key, lease, outcome.revision)
        existing = outcome.found[0]
        if existing is not None:
            return Seat(key, lease, existing.create_revision)


async def end_term(
    store: Store, own: CandidateEntry, leader: CandidateEntry, end: TermEnd, *, patience_seconds: float
) -> bool:
    """Deletes the leader's key; False when etcd refused because the leader's or the own key changed after the view."""
    note = msgspec.structs.replace(own.candidate, ended=end)
    item = Item(
        (mod_is(leader.key, leader.mod_revision), mod_is(own.key, own.mod_revision)),
        (delete(leader.key), put(own.key, codec.encode(note), lease=own.lease)),
    )
    try:
        outcome = await store.commit(item, timeout=patience_seconds)
    except (errors.Unavailable, errors.OutcomeUnknown):
        # etcd may have no space for the note. Revoking the lease needs no space, so the caller goes on with that.
        return True
    except errors.NotFound:
        return False
    return outcome.succeeded


async def remove(
    store: Store, own: CandidateEntry, leader: CandidateEntry, dead: CandidateEntry, *, patience_seconds: float
) -> bool:
    """Takes a dead standby out of the queue; False when etcd refused, for example because the standby leads by now."""
    compares = tuple(mod_is(entry.key, entry.mod_revision) for entry in (own, leader, dead))
    try:
        outcome = await store.commit(Item(compares, (delete(dead.key),)), timeout=patience_seconds)
    except (errors.Unavailable, errors.OutcomeUnknown):
        return False
    return outcome.succeeded


async def revoke(store: Store, lease: int) -> bool:
    """Whether the lease is gone. Tries for a bounded time; without an answer of etcd the lease ends by its TTL."""
    try:
        async with asyncio.timeout(_REVOKE_SECONDS):
            await store.revoke(lease)
    except errors.NotFound:
        return True
    except (TimeoutError, errors.Unavailable, errors.OutcomeUnknown):
        return False
    return True
