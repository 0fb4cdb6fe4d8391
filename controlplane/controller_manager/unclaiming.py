"""Unclaiming: deletes claims whose holder is not placed any more.

Placement and claims come and go in one transaction, so that only a person's hand or a defect parts them. The holder may
still be dying when its placement vanished: its claims go when its target's grace time has passed since the leader first
saw them alone, and not while the joblet tells of work that it still stops, nor while nothing on a silent target kills
holders. The delete compares the claim and that its holder is not placed.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from controlplane.aio.clock import Clock
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.settings import settings_of
from controlplane.controller_manager.runner import Again
from controlplane.model import silence
from controlplane.model.errors import Conflict
from controlplane.model.fulfilment import Claim
from controlplane.model.target import Live, TargetStatus
from controlplane.store import keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, absent, delete, mod_is

log = structlog.get_logger(__name__)

_LOOK_AGAIN_SECONDS = 2.0


class Unclaiming:
    name = "unclaiming"

    def __init__(self, ledgers: Ledgers, writer: FencedWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        # Claims that were seen without a holder: at which revision they are, and since when.
        self._alone: dict[str, tuple[int, float]] = {}

    def every_key(self) -> Iterable[str]:
        return list(self._ledgers.cache.snapshot.names("claims"))

    def concerned(self, touched: Touched) -> Iterable[str]:
        return touched.claims

    async def reconcile(self, key: str) -> Again | None:
        snapshot = self._ledgers.cache.snapshot
        entry = snapshot.get("claims", key)
        claim = entry.sound(Claim) if entry is not None else None
        if entry is None or claim is None or snapshot.get("desired", claim.target, claim.fulfilment) is not None:
            self._alone.pop(key, None)
            return None
        now = self._clock.monotonic()
        revision, since = self._alone.get(key, (0, 0.0))
        if revision != entry.revision:
            revision, since = self._alone[key] = (entry.revision, now)
        left = self._dies_in(claim.target, now - since)
        if left > 0:
            return Again(after_seconds=left)
        log.warning("deleting a claim whose holder is not placed", resource=key, fulfilment=claim.fulfilment)
        place = keys.desired(claim.target, claim.fulfilment)
        outcome = await self._writer.write(
            Item(compares=(mod_is(entry.stored.key, revision), absent(place)), then=(delete(entry.stored.key),))
        )
        await self._ledgers.cache.reached(outcome.revision)
        if not outcome.succeeded:
            raise Conflict("the claim moved on meanwhile")
        self._alone.pop(key, None)
        return None

    def _dies_in(self, target: str, alone_seconds: float) -> float:
        """Seconds until the holder is certainly dead; not above zero when it is now."""
        snapshot = self._ledgers.cache.snapshot
        session, entry = snapshot.get("inventory", target, keys.LIVE), snapshot.get("status/targets", target)
        live = session.sound(Live) if session is not None else None
        status = entry.sound(TargetStatus) if entry is not None else None
        promised = float(status.stop_within) if status is not None else 0.0
        left = silence.grace_seconds(settings_of(snapshot), promised) - alone_seconds
        stopping = live is not None and bool(live.leftovers)
        immortal = session is None and status is not None and not silence.kills_holders(status.driver)
        return max(left, _LOOK_AGAIN_SECONDS) if stopping or immortal else left
