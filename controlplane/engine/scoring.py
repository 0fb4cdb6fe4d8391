"""Scores: of the targets that take a task, which is best.

How full a target is counts as it will be with the task. To balance, that is the fullest of all its quantities; of
targets that are equal in that, the one that is emptier in what the task asks for is better. To pack, it is what is
left of all its quantities together.
"""

from __future__ import annotations

import numpy as np

from controlplane.engine.floor import Rows, Static, Vector
from controlplane.engine.kept import Counts
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature

# No score is as large: the first tier that is open goes before the best score of the next.
_TIER = 1e6
# How much of the score of room is what the task asks for: enough to decide between equals.
ASKED = 1e-6


def ranking(room: Room, signature: Signature, rows: Rows) -> Vector:
    """Of one more task: tiers first, then scores."""
    static = room.floor.static(signature)
    if room.packs:
        found = room.weight * (1.0 - left_with(room, signature, rows)) + others(room, signature, rows, static)
    elif room.weight and is_plain(room, signature, static):
        # Nothing else counts: whatever sorts like the score will do.
        found = order_with(room, signature, rows, 1)
    else:
        found = room.weight * idle_with(room, signature, rows, 1) + others(room, signature, rows, static)
    return found if static.tiers is None else found - _TIER * static.tiers[rows]


def is_plain(room: Room, signature: Signature, static: Static) -> bool:
    """Whether room alone makes one target better than another for such tasks, tiers apart."""
    return room.plain and static.soft is None and not signature.hurt_by


def idle_with(room: Room, signature: Signature, rows: Rows, more: Counts | int) -> Vector:
    """How much of the targets is idle with so many more of such tasks."""
    idle = room.at(room.idle, rows)
    if not signature.needs:
        return idle
    asked = asked_with(room, signature, rows, more)
    return np.asarray(np.minimum(idle, asked) + ASKED * asked)


def left_with(room: Room, signature: Signature, rows: Rows) -> Vector:
    """How much of the targets is left with one more of such tasks: the mean of the parts of all their quantities. The
    scarcest alone would fill targets that have much left of another quantity, and leave that for nobody."""
    needs = dict(signature.needs)
    left = np.zeros(len(rows))
    for name in room.free:
        left += (room.at(room.free[name], rows) - needs.get(name, 0)) * room.at(room.inverse[name], rows)
    return np.asarray(left / room.at(room.quantities, rows))


def order_with(room: Room, signature: Signature, rows: Rows, more: Counts | int) -> Vector:
    """Sorts targets like `idle_with`, with less work where such tasks ask for everything that there is."""
    if len(signature.needs) == len(room.free):
        return asked_with(room, signature, rows, more)
    return idle_with(room, signature, rows, more)


def asked_with(room: Room, signature: Signature, rows: Rows, more: Counts | int) -> Vector:
    """How much is idle, with so many more of such tasks, of what they ask for alone. Targets have all of that: a task
    that asks for what no target has is hopeless, and nobody asks about it."""
    free, inverse = room.free, room.inverse
    everywhere = rows is room.floor.all_rows
    asked: Vector | None = None
    for name, amount in signature.needs:
        left = (free[name] if everywhere else free[name][rows]) - amount * more
        left *= inverse[name] if everywhere else inverse[name][rows]
        asked = left if asked is None else np.minimum(asked, left, out=asked)
    assert asked is not None
    return asked


def others(room: Room, signature: Signature, rows: Rows, static: Static) -> Vector:
    """The rest of the score, which more tasks of a run do not change: each part is 0 to 1 (rules: -1 to 1) times its
    weight."""
    weights = room.world.settings.weights
    found = np.zeros(len(rows))
    if static.soft is not None:
        found = float(weights.soft) * static.soft[rows]
    if room.reliability is not None:
        found = found + float(weights.reliability) * room.reliability[rows]
    if room.ruled:
        found = found + float(weights.rules) * room.ruling(signature).prefer[rows]
    if signature.hurt_by:
        hurting = room.neighbours.of_classes(signature.hurt_by)[rows]
        found = found + float(weights.interference) / (1.0 + hurting)
    return found
