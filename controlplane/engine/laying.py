"""Laying: how tasks of one signature are put on targets.

Simple equivalent: for each task, of the targets that no filter refuses, take the one with the best score for one task
more. To balance, that is the one that is least full with the task; to pack, the fullest, so that a target gets all that
fit before the next one does. This version lays all tasks of a signature at once, best tier first: `leveling` finds the
same numbers without going from task to task. Tasks that ask for nothing change no target, and go evenly to all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from controlplane.engine import leveling, scoring
from controlplane.engine.floor import Rows
from controlplane.engine.kept import Counts
from controlplane.engine.room import Room
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
    return Laid() if room.hopeless(signature) else place_hopeful(room, signature, most)


def place_hopeful(room: Room, signature: Signature, most: int) -> Laid:
    """The same, for who knows that it is not hopeless."""
    laid = Laid()
    while laid.total < most:
        some = min(most - laid.total, room.allowance(signature))
        if not some:
            break
        # Without a weight of room, `leveling` knows how room decides between equals.
        alone = some == 1 and room.weight
        if not (_place_one(room, signature, laid) if alone else _place_some(room, signature, some, laid)):
            room.sharpen()
            break
    return laid


def _place_one(room: Room, signature: Signature, laid: Laid) -> bool:
    rows = room.unkept(signature, room.willing(signature))
    if not len(rows):
        return False
    ranks = scoring.ranking(room, signature, rows)
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
    rows = room.open_rows(signature)
    if not len(rows):
        return False
    tiers = room.floor.static(signature).tiers
    if tiers is not None:
        rows = rows[tiers[rows] == tiers[rows].min()]
    if room.neighbours.founds(signature):
        # The first of a kind that wants its own kind around: all go where the first one goes.
        rows, _ = _laid(room, signature, rows, 1)
    rows, counts = _laid(room, signature, rows, most)
    room.take(signature, rows, counts)
    each = [counts] * len(rows) if isinstance(counts, int) else counts.tolist()
    laid.add(rows.tolist(), each, sum(each))
    return True


def _laid(room: Room, signature: Signature, rows: Rows, most: int) -> tuple[Rows, Counts | int]:
    """Which of these targets, all of one tier, get how many."""
    if room.packs:
        return _packed(room, signature, rows, most)
    return leveling.even(room, signature, rows, most) if signature.needs else _shared(room, signature, rows, most)


def _packed(room: Room, signature: Signature, rows: Rows, most: int) -> tuple[Rows, Counts]:
    """The best target full before the next."""
    return _in_turn(room, signature, rows, most, most)


def _shared(room: Room, signature: Signature, rows: Rows, most: int) -> tuple[Rows, Counts]:
    """As many to each; whole fulfilments, as far as there is room."""
    share = -(-most // len(rows))
    return _in_turn(room, signature, rows, most, -(-share // signature.pack) * signature.pack)


def _in_turn(room: Room, signature: Signature, rows: Rows, most: int, share: int) -> tuple[Rows, Counts]:
    """The best target first, each up to its share."""
    rows = rows[(-scoring.ranking(room, signature, rows)).argsort(kind="stable")]
    each = np.minimum(room.fits(signature, rows), share)
    before = each.cumsum() - each
    taken = np.minimum(np.maximum(most - before, 0), each)
    chosen = taken.nonzero()[0]
    return rows[chosen], taken[chosen]
