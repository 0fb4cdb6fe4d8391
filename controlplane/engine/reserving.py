"""Keeping room for what does not fit yet, so that smaller work does not starve it.

One target, the one where the least is missing, is kept for one task. Whoever is served later takes of it only what is
sure to end before the task can start. Nothing is remembered: the next cycle finds the same target nearest again, since
nobody took what became free there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime

import numpy as np

from controlplane.engine import words
from controlplane.engine.floor import Mask
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature
from controlplane.model import times
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.quantity import Number

# Refusals that end when other work ends.
HELPED = frozenset({words.CAPACITY, words.FULL, words.RESERVED})
_EPSILON = 1e-9


def keep_room(room: Room, signature: Signature) -> int:
    """Keeps one target; how many were kept."""
    row = nearest(room, signature)
    if row is None:
        return 0
    room.reserve(row, soonest(room, signature, row))
    return 1


def candidates(room: Room, signature: Signature, also: Iterable[int] = ()) -> Mask:
    """Targets that would take such a task if they were empty, and refuse it for want of room alone.

    Those that are kept for somebody are left out, but for those in `also`.
    """
    mask = room.holds(signature)
    for reason, refused in room.refusals(signature):
        if reason not in HELPED:
            mask &= ~refused
    if room.any_reserved:
        kept = room.reserved >= 0
        kept[list(also)] = False
        mask &= ~kept
    return mask


def nearest(room: Room, signature: Signature) -> int | None:
    rows = np.flatnonzero(candidates(room, signature))
    if not len(rows):
        return None
    return int(rows[int(np.argmin(missing(room, signature)[rows]))])


def missing(room: Room, signature: Signature) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """How much of a target has to become free before it fits: of all quantities the largest part."""
    found = np.where(room.slots <= 0, _EPSILON, 0.0)
    for name, amount in signature.needs:
        if name in room.capacity:
            capacity = room.capacity[name]
            found = np.maximum(found, (amount - room.free[name]) / np.where(capacity > 0, capacity, 1.0))
    return found


def soonest(room: Room, signature: Signature, row: int) -> float:
    """In how many seconds enough is free there, by the time limits of what runs; infinite when they do not tell."""
    free = {name: float(room.free[name][row]) for name, _ in signature.needs}
    slots = int(room.slots[row])
    for when, fulfilment in ends(room.world.targets[row].live.values(), room.world.now):
        for name, amount in fulfilment.requests.items():
            if name in free:
                free[name] += amount
        slots += 1
        if slots > 0 and all(free[name] + _EPSILON >= amount for name, amount in signature.needs):
            return when
    return math.inf


def ends(live: Iterable[Fulfilment], now: datetime) -> list[tuple[float, Fulfilment]]:
    """When each is over at the latest, in seconds from now, those that say so, the first one first."""
    found = [(when, one) for one in live if (when := ends_in(one, now)) is not None]
    return sorted(found, key=lambda pair: (pair[0], pair[1].id))


def ends_in(fulfilment: Fulfilment, now: datetime) -> float | None:
    limit = longest(fulfilment)
    if limit is None or not fulfilment.created:
        return None
    try:
        begun = times.parse(fulfilment.created, "created")
    except Invalid:
        # Whoever wrote it by hand: nobody who waits for its room is to blame.
        return None
    return max(0.0, float(limit) - (now - begun).total_seconds())


def longest(fulfilment: Fulfilment) -> Number | None:
    limits = [spec.time_limit for spec in fulfilment.jobs.values()]
    return max((limit for limit in limits if limit is not None), default=None) if None not in limits else None
