"""Scores: which target is the best, of the targets which take a task.

The fullness of a target counts as of after the task is placed. When balancing, the fullness of a target is the
fullness of the fullest quantity; of equally full targets, the target with more idle room in the requested quantities
is better. When packing, the fullness is computed from the room left in all quantities together.
"""

from __future__ import annotations

import numpy as np

from controlplane.engine.arrays import Counts, Rows, Vector
from controlplane.engine.room import Room
from controlplane.engine.scores.interference import Interference
from controlplane.engine.scores.preferring_rules import PreferringRules
from controlplane.engine.scores.reliability import Reliability
from controlplane.engine.scores.score import Score
from controlplane.engine.scores.soft_constraints import SoftConstraints
from controlplane.engine.signature import Signature
from controlplane.engine.target_columns import StaticFit

SCORES: tuple[Score, ...] = (SoftConstraints(), Reliability(), PreferringRules(), Interference())

# Larger than any score: the first open tier goes before the best score of the next tier.
_TIER = 1e6
# Weight of the requested quantities within the score of room: just enough to decide between equal targets.
ASKED = 1e-6


def ranking(room: Room, signature: Signature, rows: Rows) -> Vector:
    """The rank of each target for a further task: tiers first, then scores."""
    static = room.floor.static(signature)
    if room.packs:
        found = room.weight * (1.0 - left_with(room, signature, rows)) + others(room, signature, rows)
    elif room.weight and is_plain(room, signature, static):
        # Only room counts, so a value with the same sort order as the score is sufficient.
        found = order_with(room, signature, rows, 1)
    else:
        found = room.weight * idle_with(room, signature, rows, 1) + others(room, signature, rows)
    return found if static.tiers is None else found - _TIER * static.tiers[rows]


def is_plain(room: Room, signature: Signature, static: StaticFit) -> bool:
    """Whether only room makes some targets better than others for such tasks, tiers apart: no score applies."""
    return room.plain and static.soft is None and not signature.hurt_by


def idle_with(room: Room, signature: Signature, rows: Rows, more: Counts | int) -> Vector:
    """How much of each target is idle with `more` such tasks added."""
    idle = room.at(room.idle, rows)
    if not signature.needs:
        return idle
    asked = asked_with(room, signature, rows, more)
    return np.asarray(np.minimum(idle, asked) + ASKED * asked)


def left_with(room: Room, signature: Signature, rows: Rows) -> Vector:
    """How much of each target is left with a further such task: the mean over all quantities of the target. Judging by
    the scarcest quantity alone would fill targets with much left of another quantity, and strand the rest."""
    needs = dict(signature.needs)
    left = np.zeros(len(rows))
    for name in room.free:
        left += (room.at(room.free[name], rows) - needs.get(name, 0)) * room.at(room.inverse[name], rows)
    return np.asarray(left / room.at(room.quantities, rows))


def order_with(room: Room, signature: Signature, rows: Rows, more: Counts | int) -> Vector:
    """Sorts targets like `idle_with`, with less work where such tasks request every existing quantity."""
    if len(signature.needs) == len(room.free):
        return asked_with(room, signature, rows, more)
    return idle_with(room, signature, rows, more)


def asked_with(room: Room, signature: Signature, rows: Rows, more: Counts | int) -> Vector:
    """How much of the requested quantities alone is idle with `more` such tasks added. All requested quantities exist
    in the room: a task requesting an unknown quantity is hopeless, and is never scored."""
    free, inverse = room.free, room.inverse
    everywhere = rows is room.floor.all_rows
    asked: Vector | None = None
    for name, amount in signature.needs:
        left = (free[name] if everywhere else free[name][rows]) - amount * more
        left *= inverse[name] if everywhere else inverse[name][rows]
        asked = left if asked is None else np.minimum(asked, left, out=asked)
    assert asked is not None
    return asked


def others(room: Room, signature: Signature, rows: Rows) -> Vector:
    """The part of the score which stays constant while tasks of a run are added."""
    weights, total = room.world.settings.weights, np.zeros(len(rows))
    for each in SCORES:
        if each.applies(room, signature):
            total = total + each.weight(weights) * each.of(room, signature, rows)
    return total
