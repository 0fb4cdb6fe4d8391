"""Unclaiming: deletes claims whose holder is not placed any more.

Placement and claims come and go in a single transaction, so that only a person or a defect parts them. The holder may
still be dying when the placement vanished: the claim goes when the target's grace time has passed since the leader
first saw the claim alone, but not while the joblet reports leftovers, nor while holders on a silent target are not
killed. The delete compares the claim, and that the holder is not placed.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from controlplane.aio.clock import Clock
from controlplane.cache.effective_settings import settings_of
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.runner import Again
from controlplane.model import silence
from controlplane.model.driver_traits import traits_of
from controlplane.store import keys
from controlplane.store.transaction import Item, absent, delete, mod_is

log = structlog.get_logger(__name__)

_LOOK_AGAIN_SECONDS = 2.0


class Unclaiming:
    name = "unclaiming"
    kind = "Controller"

    def __init__(self, ledgers: Ledgers, writer: ControllerWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        # Claims without a holder: their revision, and since when.
        self._alone: dict[str, tuple[int, float]] = {}

    def every_key(self) -> Iterable[str]:
        return list(self._ledgers.cache.snapshot.names(keys.CLAIMS))

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        return touched.claims

    async def reconcile(self, key: str) -> Again | None:
        snapshot = self._ledgers.cache.snapshot
        entry = snapshot.get(keys.CLAIMS, key)
        claim = entry.readable() if entry is not None else None
        if entry is None or claim is None or snapshot.has(keys.DESIRED, claim.target, claim.fulfilment):
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
        compares = (mod_is(entry.stored.key, revision), absent(place))
        await self._writer.write([Item(compares=compares, then=(delete(entry.stored.key),))])
        self._alone.pop(key, None)
        return None

    def _dies_in(self, target: str, alone_seconds: float) -> float:
        """Seconds until the holder is certainly dead; 0 or less means now."""
        snapshot = self._ledgers.cache.snapshot
        session, status = snapshot.live_entry(target), snapshot.target_status(target)
        live = session.readable() if session is not None else None
        promised = float(status.stop_within) if status is not None else 0.0
        left = silence.grace_seconds(settings_of(snapshot), promised) - alone_seconds
        stopping = live is not None and bool(live.leftovers)
        immortal = session is None and status is not None and not traits_of(status.driver).kills_holders
        return max(left, _LOOK_AGAIN_SECONDS) if stopping or immortal else left
