"""Gangs: all of an order's waiting tasks or none of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from controlplane.engine import words
from controlplane.engine.laying import place
from controlplane.engine.neighbours import Neighbours
from controlplane.engine.room import Room
from controlplane.engine.service import Group
from controlplane.engine.signature import Signature
from controlplane.engine.verdicts import reason_of

Parts = Sequence[tuple[Signature, Group]]


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
            return False
        rows.update(laid.rows)
    for row in rows:
        room.reserve(row, math.inf)
    return True


_OF_ROOM = frozenset({words.CAPACITY, words.FULL, words.RESERVED, words.SPREAD, words.EXCLUSIVE, words.ANTI_AFFINITY})
