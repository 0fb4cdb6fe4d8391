"""Why tasks are pending: the engine's answer on this replica's own picture of the world."""

from __future__ import annotations

from controlplane.aio.clock import Clock
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.engine import reasons
from controlplane.engine.room import Room
from controlplane.engine.world import Lookout, spread
from controlplane.model import times
from controlplane.model.order import Reason

# Looking costs as much as there are targets, so under a storm of changes one look serves many questions.
_FRESH_SECONDS = 0.1


class Reasons:
    def __init__(self, ledgers: Ledgers, clock: Clock) -> None:
        self._ledgers = ledgers
        self._clock = clock
        self._lookout = Lookout(ledgers)
        self._room: Room | None = None
        self._looked_at = 0.0
        self._judged: reasons.Judged = {}

    def of(self, ledger: OrderLedger, min_revision: int = 0) -> tuple[Reason, ...]:
        """One reason for every pending task, on a world that contains the revision."""
        room = self._look(ledger, min_revision)
        return reasons.of_order(room, ledger, times.show(self._clock.wall()), self._judged)

    def of_parts(self, ledger: OrderLedger, min_revision: int = 0) -> dict[reasons.Part, str]:
        """For each part of a job with pending tasks, why they wait."""
        room = self._look(ledger, min_revision)
        return reasons.of_parts(room, ledger, times.show(self._clock.wall()), self._judged)

    def _look(self, ledger: OrderLedger, min_revision: int) -> Room:
        now = self._clock.monotonic()
        seen = self._room
        if seen is not None and now - self._looked_at > _FRESH_SECONDS:
            seen = None
        if seen is not None and seen.world.revision < min_revision:
            seen = None
        if seen is None:
            seen = self._room = Room(self._lookout.look(self._clock.wall()))
            self._looked_at = now
            self._judged = {}
        for order, targets in spread(self._ledgers, (ledger.order.id,)).items():
            seen.keep_apart(order, targets)
        return seen
