"""Why tasks are pending: the engine's answer on this replica's own picture of the world."""

from __future__ import annotations

from controlplane.aio.clock import Clock
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.engine import reasons, world
from controlplane.engine.world import Signature, World
from controlplane.model import times
from controlplane.model.order import Reason

# Looking costs as much as there are targets, so under a storm of changes one look serves many questions.
_FRESH_SECONDS = 0.1


class Reasons:
    def __init__(self, ledgers: Ledgers, clock: Clock) -> None:
        self._ledgers = ledgers
        self._clock = clock
        self._world: World | None = None
        self._looked_at = 0.0
        self._judged: dict[Signature, str] = {}

    def of(self, ledger: OrderLedger, min_revision: int = 0) -> tuple[Reason, ...]:
        """One reason for every pending task, on a world that contains the revision."""
        world_now = self._look(min_revision)
        return reasons.of_order(world_now, ledger, times.show(self._clock.wall()), self._judged)

    def of_jobs(self, ledger: OrderLedger, min_revision: int = 0) -> dict[str, str]:
        """For each job with pending tasks, why they wait."""
        world_now = self._look(min_revision)
        return reasons.of_jobs(world_now, ledger, self._judged)

    def _look(self, min_revision: int) -> World:
        now = self._clock.monotonic()
        seen = self._world
        if seen is not None and seen.revision < self._ledgers.cache.revision:
            stale = now - self._looked_at > _FRESH_SECONDS or seen.revision < min_revision
            seen = None if stale else seen
        if seen is None:
            seen = self._world = world.look(self._ledgers)
            self._looked_at = now
            self._judged = {}
        return seen
