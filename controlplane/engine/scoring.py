"""Scores: of the targets that take a task, which is best."""

from __future__ import annotations

import numpy as np

from controlplane.engine.floor import Rows, Vector
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature

# No score is as large: the first tier that is open goes before the best score of the next.
_TIER = 1e6


def ranking(room: Room, signature: Signature, rows: Rows) -> Vector:
    """Tiers first, then scores."""
    found = score(room, signature, rows)
    tiers = room.floor.static(signature).tiers
    return found if tiers is None else found - _TIER * tiers[rows]


def score(room: Room, signature: Signature, rows: Rows) -> Vector:
    """The higher the better. Each part is 0 to 1 (rules: -1 to 1) times its weight."""
    weights = room.world.settings.weights
    load = room.at(room.load, rows)
    found = float(weights.room) * (load if room.world.settings.placement == "pack" else 1.0 - load)
    soft = room.floor.static(signature).soft
    if soft is not None:
        found += float(weights.soft) * soft[rows]
    if room.reliability is not None:
        found += float(weights.reliability) * room.reliability[rows]
    if room.ruled:
        found += float(weights.rules) * room.ruling(signature).prefer[rows]
    if signature.hurt_by:
        hurting = room.neighbours.of_classes(signature.hurt_by)[rows]
        found += float(weights.interference) / (1.0 + hurting)
    return np.asarray(found, dtype=np.float64)
