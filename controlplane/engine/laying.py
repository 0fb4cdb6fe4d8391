"""Laying: how tasks of one signature are put on targets.

Simple equivalent: for each task, of the targets which no filter refuses, take the target with the best score for one
task more. When balancing, the best target is the least full with the task; when packing, the fullest, so a target is
filled before the next target gets any task. This version lays all tasks of a signature at once, best tier first:
`leveling` finds the same numbers without going from task to task. Tasks without requests change no target, and go
evenly to all targets.
"""

from __future__ import annotations

import msgspec
import numpy as np

from controlplane.engine import filtering, leveling, scoring
from controlplane.engine.arrays import Counts, Rows
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature


class Laid(msgspec.Struct, eq=False, gc=False):
    """Rows of targets, and how many tasks each target got."""

    rows: list[int] = []
    counts: list[int] = []
    total: int = 0

    def add(self, rows: list[int], counts: list[int], total: int) -> None:
        self.rows = self.rows + rows if self.rows else rows
        self.counts = self.counts + counts if self.counts else counts
        self.total += total


def place(room: Room, signature: Signature, most: int) -> Laid:
    """Takes room for up to `most` tasks; for fewer when no more tasks fit."""
    return Laid() if room.hopeless(signature) else place_hopeful(room, signature, most)


def place_hopeful(room: Room, signature: Signature, most: int) -> Laid:
    """Like `place`, for callers which have already checked that `room.hopeless(signature)` is False."""
    laid = Laid()
    while laid.total < most:
        some = min(most - laid.total, room.allowance(signature))
        if not some:
            break
        # When room has no weight in the score, `leveling` handles how room decides between equal targets.
        alone = some == 1 and room.weight
        if not (_place_one(room, signature, laid) if alone else _place_some(room, signature, some, laid)):
            room.sharpen()
            break
    return laid


def _place_one(room: Room, signature: Signature, laid: Laid) -> bool:
    rows = filtering.unreserved(room, signature, filtering.willing(room, signature))
    if not len(rows):
        return False
    ranks = scoring.ranking(room, signature, rows)
    row = int(rows[ranks.argmax()])
    if not room.takes_one(signature, row):
        # The best target is full: take the best of the targets with room.
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
    rows = filtering.open_rows(room, signature)
    if not len(rows):
        return False
    tiers = room.floor.static(signature).tiers
    if tiers is not None:
        rows = rows[tiers[rows] == tiers[rows].min()]
    if room.neighbours.founds(signature):
        # These are the first tasks of a kind with affinity to the same kind: all go to the target of the first task.
        rows, _ = _laid(room, signature, rows, 1)
    rows, counts = _laid(room, signature, rows, most)
    room.take(signature, rows, counts)
    if isinstance(counts, int):
        laid.add(rows.tolist(), [counts] * len(rows), counts * len(rows))
    else:
        laid.add(rows.tolist(), counts.tolist(), int(counts.sum()))
    return True


def _laid(room: Room, signature: Signature, rows: Rows, most: int) -> tuple[Rows, Counts | int]:
    """Which of these targets, all of a single tier, get how many tasks."""
    if room.packs:
        return _packed(room, signature, rows, most)
    return leveling.even(room, signature, rows, most) if signature.needs else _shared(room, signature, rows, most)


def _packed(room: Room, signature: Signature, rows: Rows, most: int) -> tuple[Rows, Counts]:
    """Fills the best target before the next target gets a task."""
    return _in_turn(room, signature, rows, most, most)


def _shared(room: Room, signature: Signature, rows: Rows, most: int) -> tuple[Rows, Counts]:
    """Gives each target an equal share of the tasks, in whole fulfilments as far as there is room."""
    share = -(-most // len(rows))
    return _in_turn(room, signature, rows, most, -(-share // signature.pack) * signature.pack)


def _in_turn(room: Room, signature: Signature, rows: Rows, most: int, share: int) -> tuple[Rows, Counts]:
    """Gives tasks to the best target first, to each target up to `share` tasks."""
    rows = rows[(-scoring.ranking(room, signature, rows)).argsort(kind="stable")]
    each = np.minimum(room.fits(signature, rows), share)
    before = each.cumsum() - each
    taken = np.minimum(np.maximum(most - before, 0), each)
    chosen = taken.nonzero()[0]
    return rows[chosen], taken[chosen]
