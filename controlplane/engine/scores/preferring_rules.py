"""Preferring rules: rules which prefer or shun targets."""

from __future__ import annotations

from controlplane.engine.arrays import Rows, Vector
from controlplane.engine.room import Room
from controlplane.engine.scores.score import Score
from controlplane.engine.signature import Signature
from controlplane.model.settings import Weights


class PreferringRules(Score):
    def applies(self, room: Room, signature: Signature) -> bool:
        return room.ruled

    def weight(self, weights: Weights) -> float:
        return float(weights.rules)

    def of(self, room: Room, signature: Signature, rows: Rows) -> Vector:
        return room.ruling(signature).prefer[rows]
