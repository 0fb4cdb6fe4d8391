"""Reliability: targets where fewer attempts failed lately are better."""

from __future__ import annotations

from controlplane.engine.arrays import Rows, Vector
from controlplane.engine.room import Room
from controlplane.engine.scores.score import Score
from controlplane.engine.signature import Signature
from controlplane.model.settings import Weights


class Reliability(Score):
    def applies(self, room: Room, signature: Signature) -> bool:
        return room.reliability is not None

    def weight(self, weights: Weights) -> float:
        return float(weights.reliability)

    def of(self, room: Room, signature: Signature, rows: Rows) -> Vector:
        assert room.reliability is not None
        return room.reliability[rows]
