"""Laying: how tasks of one signature are put on targets.

Simple equivalent: for each task, of the targets that no filter refuses, take the one with the best score. This version
lays all tasks of a signature at once: best tier first, and within a tier evenly, in order of score, over the targets
that are as good as the best but for how full they are (or, to pack, the best target full before the next).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from controlplane.engine.floor import Rows, Vector
from controlplane.engine.room import Counts, Room
from controlplane.engine.scoring import ranking
from controlplane.engine.signature import Signature


@dataclass(slots=True)
class Laid:
    """Rows of targets, and how many tasks each got."""

    rows: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    total: int = 0

    def add(self, rows: list[int], counts: list[int], total: int) -> None:
        self.rows += rows
        self.counts += counts
        self.total += total


def place(room: Room, signature: Signature, most: int) -> Laid:
    """Takes room for up to `most` tasks; fewer when no more fit."""
    laid = Laid()
    if room.hopeless(signature):
        return laid
    while laid.total < most:
        some = min(most - laid.total, room.allowance(signature))
        if not some:
            break
        if not (_place_one(room, signature, laid) if some == 1 else _place_some(room, signature, some, laid)):
            room.sharpen()
            break
    return laid


def _place_one(room: Room, signature: Signature, laid: Laid) -> bool:
    rows = room.unkept(signature, room.willing(signature))
    if not len(rows):
        return False
    ranks = ranking(room, signature, rows)
    row = int(rows[ranks.argmax()])
    if not room.takes_one(signature, row):
        # The best of all is full: the best of those that are not.
        able = room.able(signature, rows)
        if room.slotted:
            able &= room.at(room.slots, rows) > 0
        best = int(np.where(able, ranks, -np.inf).argmax())
        if not able[best]:
            return False
        row = int(rows[best])
    room.take_one(signature, row)
    laid.add([row], [1], 1)
    return True


def _place_some(room: Room, signature: Signature, most: int, laid: Laid) -> bool:
    rows, fits = room.open_rows(signature)
    if not len(rows):
        return False
    if room.neighbours.founds(signature):
        # The first of a kind that wants its own kind around: all go where the first one goes.
        best = int(np.argmax(ranking(room, signature, rows)))
        rows, fits = rows[best : best + 1], fits[best : best + 1]
    rows, counts = _lay(room, signature, rows, fits, most)
    room.take(signature, rows, counts)
    laid.add(rows.tolist(), counts.tolist(), int(counts.sum()))
    return True


def _lay(room: Room, signature: Signature, rows: Rows, fits: Counts, most: int) -> tuple[Rows, Counts]:
    ranks = ranking(room, signature, rows)
    tiers = room.floor.static(signature).tiers
    if tiers is not None:
        best = tiers[rows] == tiers[rows].min()
        rows, fits, ranks = rows[best], fits[best], ranks[best]
    share = most
    if room.world.settings.placement != "pack":
        # Who is worse by more than an empty target can make up for gets nothing while better ones have room.
        top, reach = ranks.max(), float(room.world.settings.weights.room)
        best = ranks > top - reach if reach else ranks == top
        if not best.all():
            rows, fits, ranks = rows[best], fits[best], ranks[best]
        share = -(-most // len(rows))
        if signature.pack > 1:
            # Whole fulfilments, as far as there is room.
            share = -(-share // signature.pack) * signature.pack
    if share == 1 and most < len(rows):
        order = _best(ranks, most)
        return rows[order], np.ones(most, dtype=np.int64)
    order = (-ranks).argsort(kind="stable")
    each = np.minimum(fits[order], share)
    before = each.cumsum() - each
    taken = np.minimum(np.maximum(most - before, 0), each)
    chosen = taken.nonzero()[0]
    return rows[order[chosen]], taken[chosen]


def _best(ranks: Vector, most: int) -> Rows:
    """Where so many highest ranks are, the highest first, of equals the first: the front of a stable sort of all."""
    least = np.partition(ranks, len(ranks) - most)[len(ranks) - most]
    above = (ranks >= least).nonzero()[0]
    return np.asarray(above[(-ranks[above]).argsort(kind="stable")[:most]])
