"""Why tasks are pending: the engine's answer on this replica's own picture of the world."""

from __future__ import annotations

import structlog

from controlplane.aio.clock import Clock
from controlplane.cache.isolated import isolated_in
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.engine import reasons
from controlplane.engine.guarding import room_of
from controlplane.engine.room import Room
from controlplane.engine.world import spread_of
from controlplane.model import times
from controlplane.model.isolation import Bystander, sentence
from controlplane.model.order import Reason
from controlplane.survey.world_builder import WorldBuilder

log = structlog.get_logger(__name__)

# The cost of a look grows with the targets, so under a storm of changes one look serves many questions.
_FRESH_SECONDS = 0.1


class Reasons:
    def __init__(self, ledgers: Ledgers, clock: Clock) -> None:
        self._ledgers = ledgers
        self._clock = clock
        self._builder = WorldBuilder(ledgers)
        self._room: Room | None = None
        self._looked_at = 0.0
        self._judged: reasons.Judged = {}

    def of(self, ledger: OrderLedger, min_revision: int = 0) -> tuple[Reason, ...]:
        """One reason for every pending task, on a world with at least the revision."""
        parts = self.of_parts(ledger, min_revision)
        return reasons.counted_reasons(ledger, times.show(self._clock.wall()), parts)

    def of_parts(self, ledger: OrderLedger, min_revision: int = 0) -> dict[reasons.Part, str]:
        """Why tasks wait, for each part of a job with pending tasks. An order which cannot be judged is isolated."""
        isolated = isolated_in(self._ledgers.cache.snapshot, "Order", ledger.order.id, part="scheduler")
        if isolated is not None:
            return reasons.isolated_parts(ledger)
        try:
            room = self._look(ledger, min_revision)
            return reasons.of_parts(room, ledger, times.show(self._clock.wall()), self._judged)
        except Exception as error:  # noqa: BLE001 - supervision: the leader meets the same error, and tells of it
            log.debug("why an order waits cannot be worked out", order=ledger.order.id, error=sentence(error))
            return reasons.isolated_parts(ledger)

    def _look(self, ledger: OrderLedger, min_revision: int) -> Room:
        now = self._clock.monotonic()
        seen = self._room
        if seen is not None and now - self._looked_at > _FRESH_SECONDS:
            seen = None
        if seen is not None and seen.world.revision < min_revision:
            seen = None
        if seen is None:
            seen = self._room = room_of(self._builder.build(self._clock.wall()), Bystander())
            self._looked_at = now
            self._judged = {}
        seen.keep_apart(ledger.order.id, spread_of(ledger))
        return seen
