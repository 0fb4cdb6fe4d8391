"""Keeping room for work which does not fit yet, so that smaller work does not starve large work.

A target is kept for a task: the target where the task fits soonest, by the time limits of the running work. Work
without a known end stays, so a target is never kept behind such work, and every target is kept for a bounded time.
Other work may still go to a kept target under the conditions of `kept`. No state is remembered between cycles: the next
cycle finds the same target again, since work placed there meanwhile is over in time or left enough room.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from controlplane.engine import filtering
from controlplane.engine.arrays import Mask, Vector
from controlplane.engine.kept import UNLIMITED, Beneficiary
from controlplane.engine.neighbours import kinds_repel
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature
from controlplane.model.quantity import EPSILON


def keep_room(room: Room, signature: Signature, orders: Iterator[str], most: int) -> int:
    """Keeps up to `most` targets, each for such a task of the next order in `orders`; how many targets were kept."""
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
        name: float(room.free[name][row]) + sum(float(fulfilment.requests.get(name, 0)) for fulfilment in over) - amount
        for name, amount in signature.needs
    }
    slots = int(room.slots[row]) + len(over) - 1 if room.slotted else UNLIMITED
    room.kept.keep(row, until, spare, slots, [Beneficiary(order, signature)])
    room.shrunk()


def _over(room: Room, row: int, until: float) -> int:
    """How many of the target's fulfilments are over by `until`: always the first fulfilments of the target's ends."""
    of_row = room.ends.when[room.ends.rows == row]
    return int((of_row <= until).sum())


def candidates(room: Room, signature: Signature) -> Mask:
    """Targets which are not kept yet, and would take such a task once other work has ended."""
    mask = relievable(room, signature)
    return mask & (room.kept.until < 0) if room.kept.any else mask


def relievable(room: Room, signature: Signature) -> Mask:
    """Targets large enough for such a task which refuse the task, if at all, only for reasons ended by the end of other
    work."""
    mask = room.holds(signature)
    for code, refused in filtering.refusals(room, signature):
        if code not in filtering.ENDED_BY_OTHERS:
            mask &= ~refused
    return mask


def missing(room: Room, signature: Signature) -> Vector:
    """How much of each target has to become free before such a task fits: the largest part over all quantities."""
    parts = np.where(room.slots <= 0, EPSILON, 0.0)
    for name, amount in signature.needs:
        if name in room.capacity:
            capacity = room.capacity[name]
            parts = np.maximum(parts, (amount - room.free[name]) / np.where(capacity > 0, capacity, 1.0))
    return parts


def soonest(room: Room, signature: Signature) -> Vector:
    """In how many seconds such a task fits on each target, by the known ends of the running work; infinite when the
    known ends are not enough."""
    fits_at = np.where(room.able(signature, room.floor.all_rows) & (room.slots > 0), 0.0, np.inf)
    ends = room.ends
    enough = room.slots[ends.rows] + ends.turn > 0
    for name, amount in signature.needs:
        if name not in room.free:
            return np.full(len(fits_at), np.inf)
        enough &= room.free[name][ends.rows] + ends.freed(name) + EPSILON >= amount
    np.minimum.at(fits_at, ends.rows[enough], ends.when[enough])
    return np.maximum(fits_at, alone_at(room, signature))


def alone_at(room: Room, signature: Signature) -> Vector:
    """In how many seconds each target has no work left which such a task cannot run beside."""
    waits = np.zeros(len(room.floor.targets))
    if not room.neighbours.matter_to(signature) and not signature.spread:
        return waits
    ends = room.ends
    kinds, codes = ends.kinds
    repelled = np.array([kinds_repel(signature.kind, kind) for kind in kinds], dtype=bool)
    against = repelled[codes] if len(codes) else np.zeros(0, dtype=bool)
    waits[_laid_against(room, signature)] = np.inf
    if signature.spread:
        there = room.world.spread.get(signature.spread, {})
        ids = frozenset[str]().union(*there.values())
        if ids:
            against = against | np.array([fulfilment.id in ids for fulfilment in ends.fulfilments], dtype=bool)
        new = room.apart(signature.spread) - there.keys()
        waits[room.floor.named(tuple(new))] = np.inf
    np.maximum.at(waits, ends.rows[against], ends.when[against])
    return waits


def _laid_against(room: Room, signature: Signature) -> Mask:
    """Targets which got, in this very cycle, a task which such a task cannot run beside."""
    mask = np.zeros(len(room.floor.targets), dtype=bool)
    for kind, counts in room.neighbours.present.items():
        if kinds_repel(signature.kind, kind):
            before = np.array([target.kinds.get(kind, 0) for target in room.world.targets], dtype=np.int64)
            mask |= counts > before
    return mask
