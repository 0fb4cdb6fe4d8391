"""The record of terms: which replica led, since when, and how the term before ended. Clean-up deletes old records."""

from __future__ import annotations

from controlplane.aio.clock import Clock
from controlplane.election.held_leadership import Leadership
from controlplane.model import errors, times
from controlplane.model.leadership import Term, TermEnd
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item

_RETRY_SECONDS = 0.1


async def record(leadership: Leadership, ended: TermEnd, clock: Clock) -> int:
    """Writes the record of the own term, fenced, and returns its revision. A repeated write puts the same value."""
    candidate = leadership.candidate
    term = Term(
        epoch=leadership.epoch,
        id=candidate.id,
        incarnation=candidate.incarnation,
        since=times.show(clock.wall()),
        grpc=candidate.grpc,
        http=candidate.http,
        ended=ended,
    )
    item = Item(then=(transaction.put(keys.term(leadership.epoch), codec.encode(term)),))
    while True:
        try:
            return (await leadership.commit([item]))[0].revision
        except (errors.Unavailable, errors.OutcomeUnknown):
            await clock.sleep(_RETRY_SECONDS)
