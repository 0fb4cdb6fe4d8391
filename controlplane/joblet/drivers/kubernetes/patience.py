"""How long to wait before the next try: longer each time, never in step with others, not less than the API asks."""

from __future__ import annotations

import random

from controlplane.joblet.drivers.kubernetes.api import Answered
from controlplane.model.errors import ControlPlaneError

FIRST_SECONDS = 0.1
MOST_SECONDS = 10.0


class Patience:
    """One for each thing that is tried; `chance` draws from 0 to 1."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()
        self.failures = 0

    def success(self) -> None:
        self.failures = 0

    def failure(self, error: ControlPlaneError | None = None) -> float:
        """Seconds until the next try."""
        most: float = min(MOST_SECONDS, FIRST_SECONDS * 2 ** min(self.failures, 20))
        self.failures += 1
        asked = error.retry_after if isinstance(error, Answered) and error.retry_after is not None else 0.0
        return asked + most * (0.5 + self._chance.random() / 2)
