"""A score of targets for tasks of one signature."""

from __future__ import annotations

from abc import ABC, abstractmethod

from controlplane.engine.arrays import Rows, Vector
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature
from controlplane.model.settings import Weights


class Score(ABC):
    @abstractmethod
    def applies(self, room: Room, signature: Signature) -> bool:
        """Whether the score can differ between targets."""

    @abstractmethod
    def weight(self, weights: Weights) -> float:
        """How much the score counts, from the weights of the settings."""

    @abstractmethod
    def of(self, room: Room, signature: Signature, rows: Rows) -> Vector:
        """The score of each of the given targets, 0 to 1 (of rules -1 to 1)."""
