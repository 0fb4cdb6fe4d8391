"""Gangs: all of an order's waiting tasks or none of them.

Tried in two orders only: of all ways to fill targets there are too many to say that none would do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from controlplane.engine import words
from controlplane.engine.laying import place
from controlplane.engine.neighbours import Neighbours
from controlplane.engine.room import Room
from controlplane.engine.service import Group
from controlplane.engine.signature import Signature
from controlplane.engine.verdicts import reason_of

Parts = Sequence[tuple[Signature, Group]]


def arrange(room: Room, owner: str, parts: Parts) -> tuple[Parts, str | None]:
    """The parts in an order in which laying them one by one takes all of them; or as named, and why that is not so."""
    reason: str | None = None
    for order in _orders(room, parts):
        refused = refusal(room.trial(), owner, order)
        if refused is None:
            return order, None
        reason = reason or refused
    return parts, reason


def refusal(trial: Room, owner: str, parts: Parts) -> str | None:
    """Why the gang does not go in whole; None when it does. The trial is used up."""
    for signature, group in parts:
        allowed = trial.owners.allowance(owner, signature)
        done = place(trial, signature, min(group.count, allowed)).total
        trial.owners.take(owner, signature, done)
        if done < group.count:
            reason = reason_of(trial, signature, owner)
            return words.GANG if reason in _OF_ROOM else reason
    return None


def keep_room(room: Room, parts: Parts) -> bool:
    """Keeps the targets that the gang would use if all other work were over; none when even that is not enough."""
    for order in _orders(room, parts):
        rows = _rows_when_empty(room, order)
        if rows is not None:
            for row in rows:
                room.reserve(row, math.inf)
            return True
    return False


def _rows_when_empty(room: Room, parts: Parts) -> set[int] | None:
    empty = room.trial()
    empty.free = {name: amounts.copy() for name, amounts in room.capacity.items()}
    for row, target in enumerate(room.world.targets):
        if target.slots is not None:
            empty.slots[row] = target.slots + len(target.live)
    empty.neighbours = Neighbours.without(room.neighbours)
    empty.widen()
    rows: set[int] = set()
    for signature, group in parts:
        laid = place(empty, signature, group.count)
        if laid.total < group.count:
            return None
        rows.update(laid.rows)
    return rows


def _orders(room: Room, parts: Parts) -> Iterator[Parts]:
    """As named; then large ones first, since small ones fill gaps, and those last that look for company."""
    yield parts
    again = sorted(parts, key=lambda part: (bool(part[0].affinity), -_size(room, part[0])))
    if again != list(parts):
        yield again


def _size(room: Room, signature: Signature) -> float:
    """Of all quantities the largest part of the largest target."""
    most = {name: float(capacity.max()) for name, capacity in room.capacity.items() if len(capacity)}
    return max((amount / most[name] for name, amount in signature.needs if most.get(name)), default=0.0)


_OF_ROOM = frozenset({words.CAPACITY, words.FULL, words.RESERVED, words.SPREAD, words.EXCLUSIVE, words.ANTI_AFFINITY})
