"""P1: every leader's write carries the epoch of the leader at its revision.

The leader is known from history itself: the candidate with the oldest key before the transaction. Deletes carry no
value and so no epoch: they are not judged. Events are written by any component; an event with an epoch claims a leader
as its writer, and is judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from controlplane.model.order import Order
from controlplane.store import keys
from controlplane.verify.history import KeyChange
from controlplane.verify.promise_verdicts import PromiseVerdict, Tally

_LEADERS = tuple(
    f"{keys.ROOT}{front}/"
    for front in (keys.DESIRED, keys.CLAIMS, keys.TERMS, keys.CYCLES, keys.STATUS, "rounds", "locks", "contracts")
)
# Trees whose keys name the epoch too.
_NAMED_BY_EPOCH = (keys.TERMS, keys.CYCLES)


class _EpochStamp(msgspec.Struct):
    epoch: int


class FencedCheck:
    """Follows the candidates through history and compares the epoch of every leader's write."""

    def __init__(self) -> None:
        self._tally = Tally("P1", "no leader wrote anything")
        self._candidates: dict[str, int] = {}
        self._leader = 0

    def start(self, state: Sequence[KeyChange]) -> None:
        self._follow(state)

    def change(self, revision: int, changes: Sequence[KeyChange]) -> None:
        for event in changes:
            if not event.deleted and (event.key.startswith(_LEADERS) or _is_run(event) or _is_event_of_leader(event)):
                self._judge(event)
        self._follow(changes)

    def verdict(self) -> PromiseVerdict:
        return self._tally.verdict()

    def _follow(self, events: Iterable[KeyChange]) -> None:
        changed = False
        for event in events:
            if event.tree != keys.CANDIDATES:
                continue
            changed = True
            if event.deleted or event.object is None:
                # Every replica skips a value that is no candidate.
                self._candidates.pop(event.key, None)
            else:
                self._candidates[event.key] = event.created
        if changed:
            self._leader = min(self._candidates.values(), default=0)

    def _judge(self, event: KeyChange) -> None:
        self._tally.checked += 1
        epoch = _epoch(event)
        if epoch is None:
            self._tally.broken(event.key, event.revision, "carries no epoch")
        elif not self._leader:
            self._tally.broken(event.key, event.revision, f"carries epoch {epoch}, but nobody led")
        elif epoch != self._leader:
            self._tally.broken(event.key, event.revision, f"carries epoch {epoch}, but {self._leader} led")
        elif event.tree in _NAMED_BY_EPOCH and event.parts[0] != f"{epoch:020d}":
            self._tally.broken(event.key, event.revision, f"carries epoch {epoch}, but its key names another")


def _is_run(event: KeyChange) -> bool:
    """Whether a leader creates the run of a recurring order; later changes of the run are the user's."""
    return (
        event.tree == keys.ORDERS and event.is_new and isinstance(event.object, Order) and bool(event.object.template)
    )


def _is_event_of_leader(event: KeyChange) -> bool:
    return event.tree == keys.EVENTS and bool(_epoch(event))


def _epoch(event: KeyChange) -> int | None:
    if event.object is not None:
        epoch: int | None = getattr(event.object, "epoch", None)
        return epoch
    try:
        return msgspec.json.decode(event.value, type=_EpochStamp).epoch
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
