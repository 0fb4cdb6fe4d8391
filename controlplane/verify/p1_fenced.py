"""P1: a write that says "leader" carries the epoch that led at that revision.

Who led is known from the history itself: the candidate whose key is the oldest of those that existed before the
transaction. Deletes carry no value, so nobody can say who made them: they are not judged here. Events are written by
any component; one that carries an epoch says that a leader wrote it, and is judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from controlplane.model.order import Order
from controlplane.store import keys
from controlplane.verify.history import Event
from controlplane.verify.verdict import Tally, Verdict

_LEADERS = tuple(
    f"{keys.ROOT}{front}/"
    for front in ("desired", "claims", "terms", "cycles", "status", "rounds", "locks", "contracts")
)
# Their keys name the epoch too.
_NAMED_BY_EPOCH = ("terms", "cycles")


class _Stamped(msgspec.Struct):
    epoch: int


class Fenced:
    def __init__(self) -> None:
        self._tally = Tally("P1", "no leader wrote anything")
        self._candidates: dict[str, int] = {}
        self._leader = 0

    def start(self, state: Sequence[Event]) -> None:
        self._follow(state)

    def change(self, revision: int, changes: Sequence[Event]) -> None:
        for event in changes:
            if not event.deleted and (event.key.startswith(_LEADERS) or _is_run(event) or _told_by_leader(event)):
                self._judge(event)
        self._follow(changes)

    def verdict(self) -> Verdict:
        return self._tally.verdict()

    def _follow(self, events: Iterable[Event]) -> None:
        changed = False
        for event in events:
            if event.tree != "election":
                continue
            changed = True
            if event.deleted or event.object is None:
                # A value that is no candidate is left out by every replica alike.
                self._candidates.pop(event.key, None)
            else:
                self._candidates[event.key] = event.created
        if changed:
            self._leader = min(self._candidates.values(), default=0)

    def _judge(self, event: Event) -> None:
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


def _is_run(event: Event) -> bool:
    """The run of a recurring order, when it is made: what users change of it later says nothing about leaders."""
    return (
        event.tree == "config/orders"
        and event.is_new
        and isinstance(event.object, Order)
        and bool(event.object.template)
    )


def _told_by_leader(event: Event) -> bool:
    return event.tree == "events" and bool(_epoch(event))


def _epoch(event: Event) -> int | None:
    if event.object is not None:
        found: int | None = getattr(event.object, "epoch", None)
        return found
    try:
        return msgspec.json.decode(event.value, type=_Stamped).epoch
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
