"""The record of terms: who led, since when, and how the term before ended. Old ones go in the clean-up."""

from __future__ import annotations

from controlplane.aio.clock import Clock
from controlplane.election.leadership import Leadership
from controlplane.model import errors, times
from controlplane.model.leadership import Term, TermEnd
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item

_RETRY_SECONDS = 0.1


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
