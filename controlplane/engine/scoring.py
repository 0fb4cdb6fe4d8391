"""Scores: of the targets that take a task, which is best.

How full a target is counts as it will be with the task: of all its quantities the fullest; of targets that are equal in
that, the one that is emptier in what the task asks for.
"""

from __future__ import annotations

import numpy as np

from controlplane.engine.floor import Rows, Vector
from controlplane.engine.kept import Counts
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature

# No score is as large: the first tier that is open goes before the best score of the next.
_TIER = 1e6
# How much of the score of room is what the task asks for: enough to decide between equals.
ASKED = 1e-6


def ranking(room: Room, signature: Signature, rows: Rows) -> Vector:
    """Of one more task: tiers first, then scores."""
    settings = room.world.settings
    weight, packs = float(settings.weights.room), settings.placement == "pack"
    rest = others(room, signature, rows)
    if isinstance(rest, float) and weight:
        # Nothing else counts: whatever sorts like the score will do.
        idle = order_with(room, signature, rows, 1)
        found = -idle if packs else idle
    else:
        idle = idle_with(room, signature, rows, 1)
        found = weight * (1.0 - idle if packs else idle) + rest
    tiers = room.floor.static(signature).tiers
    return found if tiers is None else found - _TIER * tiers[rows]


def idle_with(room: Room, signature: Signature, rows: Rows, more: Counts | int) -> Vector:
    """How much of the targets is idle with so many more of such tasks."""
    idle = room.at(room.idle, rows)
    if not signature.needs:
        return idle
    asked = asked_with(room, signature, rows, more)
    return np.asarray(np.minimum(idle, asked) + ASKED * asked)


def order_with(room: Room, signature: Signature, rows: Rows, more: Counts | int) -> Vector:
    """Sorts targets like `idle_with`, with less work where such tasks ask for everything that there is."""
    if asks_for_all(room, signature):
        return asked_with(room, signature, rows, more)
    return idle_with(room, signature, rows, more)


def asks_for_all(room: Room, signature: Signature) -> bool:
    return len(signature.needs) == len(room.free) and all(name in room.free for name, _ in signature.needs)


def asked_with(room: Room, signature: Signature, rows: Rows, more: Counts | int) -> Vector:
    """How much is idle, with so many more of such tasks, of what they ask for alone."""
    asked: Vector | None = None
    for name, amount in signature.needs:
        if name in room.free:
            left = room.at(room.free[name], rows) - amount * more
            left *= room.at(room.inverse[name], rows)
            asked = left if asked is None else np.minimum(asked, left, out=asked)
    return np.zeros(len(rows)) if asked is None else asked


def others(room: Room, signature: Signature, rows: Rows) -> Vector | float:
    """The rest of the score, which more tasks of a run do not change: each part is 0 to 1 (rules: -1 to 1) times its
    weight."""
    weights = room.world.settings.weights
    found: Vector | float = 0.0
    soft = room.floor.static(signature).soft
    if soft is not None:
        found = float(weights.soft) * soft[rows]
    if room.reliability is not None:
        found = found + float(weights.reliability) * room.reliability[rows]
    if room.ruled:
        found = found + float(weights.rules) * room.ruling(signature).prefer[rows]
    if signature.hurt_by:
        hurting = room.neighbours.of_classes(signature.hurt_by)[rows]
        found = found + float(weights.interference) / (1.0 + hurting)
    return found
