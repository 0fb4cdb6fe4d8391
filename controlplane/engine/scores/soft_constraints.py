"""Soft constraints: the part of the weights of all soft constraints of the job which the target satisfies."""

from __future__ import annotations

from controlplane.engine.arrays import Rows, Vector
from controlplane.engine.room import Room
from controlplane.engine.scores.score import Score
from controlplane.engine.signature import Signature
from controlplane.model.settings import Weights


class SoftConstraints(Score):
    def applies(self, room: Room, signature: Signature) -> bool:
        return room.floor.static(signature).soft is not None

    def weight(self, weights: Weights) -> float:
        return float(weights.soft)

    def of(self, room: Room, signature: Signature, rows: Rows) -> Vector:
        soft = room.floor.static(signature).soft
        assert soft is not None
        return soft[rows]
