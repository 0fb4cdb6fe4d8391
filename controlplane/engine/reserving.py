"""Keeping room for work that does not fit yet, so that smaller work does not starve it.

A target is kept for one task: the target where the task fits soonest, by the time limits of what runs there. Work
without a known end stays, so a target is never kept behind it, and every target is kept for a bounded time. Others
may still go there as `kept` says. Nothing is remembered: the next cycle finds the same target again, since what went
there meanwhile is over in time or left enough room.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from controlplane.engine import words
from controlplane.engine.floor import Mask, Vector
from controlplane.engine.kept import UNLIMITED, Beneficiary
from controlplane.engine.neighbours import kinds_repel
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature

# Refusals that end when other work ends.
HELPED = frozenset({words.CAPACITY, words.FULL, words.RESERVED, words.EXCLUSIVE, words.ANTI_AFFINITY, words.SPREAD})
_EPSILON = 1e-9


def keep_room(room: Room, signature: Signature, orders: Iterator[str], most: int) -> int:
    """Keeps up to so many targets, each for one such task of the next of the orders; how many were kept."""
    waits = soonest(room, signature)
    short = missing(room, signature)
    rows = np.flatnonzero(candidates(room, signature) & np.isfinite(waits))
    best = rows[np.lexsort((rows, short[rows], waits[rows]))][:most]
    for row, order in zip(best.tolist(), orders, strict=False):
        _keep(room, signature, row, float(waits[row]), order)
    return len(best)


def _keep(room: Room, signature: Signature, row: int, until: float, order: str) -> None:
    over = room.world.targets[row].ends.fulfilments[: _over(room, row, until)]
    spare = {
        name: float(room.free[name][row]) + sum(float(one.requests.get(name, 0)) for one in over) - amount
        for name, amount in signature.needs
    }
    slots = int(room.slots[row]) + len(over) - 1 if room.slotted else UNLIMITED
    room.kept.keep(row, until, spare, slots, [Beneficiary(order, signature)])
    room.shrunk()


def _over(room: Room, row: int, until: float) -> int:
    """How many of the target's fulfilments are over by then: they are the first ones."""
    of_row = room.ends.when[room.ends.rows == row]
    return int((of_row <= until).sum())


def candidates(room: Room, signature: Signature) -> Mask:
    """Targets that are kept for nobody, and would take such a task if they were empty."""
    mask = relievable(room, signature)
    return mask & (room.kept.until < 0) if room.kept.any else mask


def relievable(room: Room, signature: Signature) -> Mask:
    """Targets large enough for such a task that refuse it, if at all, for what the end of other work would change."""
    mask = room.holds(signature)
    for reason, refused in room.refusals(signature):
        if reason not in HELPED:
            mask &= ~refused
    return mask


def missing(room: Room, signature: Signature) -> Vector:
    """How much of a target has to become free before it fits: of all quantities the largest part."""
    found = np.where(room.slots <= 0, _EPSILON, 0.0)
    for name, amount in signature.needs:
        if name in room.capacity:
            capacity = room.capacity[name]
            found = np.maximum(found, (amount - room.free[name]) / np.where(capacity > 0, capacity, 1.0))
    return found


def soonest(room: Room, signature: Signature) -> Vector:
    """In how many seconds one such task fits on each target, by the known ends of what runs there; infinite when they
    do not tell."""
    fits_at = np.where(room.able(signature, room.floor.all_rows) & (room.slots > 0), 0.0, np.inf)
    ends = room.ends
    enough = room.slots[ends.rows] + ends.turn > 0
    for name, amount in signature.needs:
        if name not in room.free:
            return np.full(len(fits_at), np.inf)
        enough &= room.free[name][ends.rows] + ends.freed(name) + _EPSILON >= amount
    np.minimum.at(fits_at, ends.rows[enough], ends.when[enough])
    return np.maximum(fits_at, alone_at(room, signature))


def alone_at(room: Room, signature: Signature) -> Vector:
    """In how many seconds each target has nobody left whom such a task cannot be beside."""
    found = np.zeros(len(room.floor.targets))
    if not room.neighbours.matter_to(signature) and not signature.spread:
        return found
    ends = room.ends
    kinds, codes = ends.kinds
    repelled = np.array([kinds_repel(signature.kind, kind) for kind in kinds], dtype=bool)
    against = repelled[codes] if len(codes) else np.zeros(0, dtype=bool)
    found[_laid_against(room, signature)] = np.inf
    if signature.spread:
        there = room.world.spread.get(signature.spread, {})
        ids = frozenset[str]().union(*there.values())
        if ids:
            against = against | np.array([one.id in ids for one in ends.fulfilments], dtype=bool)
        new = room.apart(signature.spread) - there.keys()
        found[room.floor.named(tuple(new))] = np.inf
    np.maximum.at(found, ends.rows[against], ends.when[against])
    return found


def _laid_against(room: Room, signature: Signature) -> Mask:
    """Targets that got, in this very cycle, a task that such a task cannot be beside."""
    mask = np.zeros(len(room.floor.targets), dtype=bool)
    for kind, counts in room.neighbours.present.items():
        if kinds_repel(signature.kind, kind):
            before = np.array([target.kinds.get(kind, 0) for target in room.world.targets], dtype=np.int64)
            mask |= counts > before
    return mask
