"""Interference: targets with fewer tasks of the classes named in `hurt_by` of the job are better."""

from __future__ import annotations

import numpy as np

from controlplane.engine.arrays import Rows, Vector
from controlplane.engine.room import Room
from controlplane.engine.scores.score import Score
from controlplane.engine.signature import Signature
from controlplane.model.settings import Weights


class Interference(Score):
    def applies(self, room: Room, signature: Signature) -> bool:
        return bool(signature.hurt_by)

    def weight(self, weights: Weights) -> float:
        return float(weights.interference)

    def of(self, room: Room, signature: Signature, rows: Rows) -> Vector:
        return np.asarray(1.0 / (1.0 + room.neighbours.of_classes(signature.hurt_by)[rows]))
