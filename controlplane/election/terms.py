"""The record of terms: who led, since when, and how the term before ended. The last 1,000 are kept."""

from __future__ import annotations

import structlog

from controlplane.aio.clock import Clock
from controlplane.election.leadership import Leadership
from controlplane.model import errors, times
from controlplane.model.leadership import Term, TermEnd
from controlplane.store import codec, keys, transaction
from controlplane.store.kv import Store
from controlplane.store.transaction import Item

log = structlog.get_logger()

KEPT = 1000

_TREE = f"{keys.ROOT}terms/"
_RETRY_SECONDS = 0.1
_AT_ONCE = 50


async def record(leadership: Leadership, ended: TermEnd, clock: Clock) -> int:
    """Writes the record of this term, fenced, and returns its revision. Repeating it puts the same value."""
    who = leadership.candidate
    term = Term(
        epoch=leadership.epoch,
        id=who.id,
        incarnation=who.incarnation,
        since=times.show(clock.wall()),
        grpc=who.grpc,
        http=who.http,
        ended=ended,
    )
    item = Item(then=(transaction.put(keys.term(leadership.epoch), codec.encode(term)),))
    while True:
        try:
            return (await leadership.commit([item]))[0].revision
        except (errors.Unavailable, errors.OutcomeUnknown):
            await clock.sleep(_RETRY_SECONDS)


async def prune(store: Store, leadership: Leadership) -> int:
    """Deletes all but the newest records; a failure is left to the next term. Returns how many went."""
    found: list[str] = []
    gone = 0
    try:
        async for page in store.pages(_TREE, keys_only=True):
            found.extend(value.key for value in page.values)
        old = [Item(then=(transaction.delete(key),)) for key in found[:-KEPT]]
        while remaining := old[gone : gone + _AT_ONCE]:
            await leadership.commit(remaining)
            gone += len(remaining)
    except (errors.Unavailable, errors.OutcomeUnknown, errors.Compacted):
        log.info("old term records are left to the next term")
    return gone
