"""Strays: ends placements whose order is final or gone.

No write of this system leaves a stray behind, but a person or a defect may. The joblet is asked to stop the stray, and
the report releases it like any other fulfilment; on a lost target, `target_controller` gives it back. An order with an
unreadable config is neither final nor gone: its placements stay until the value is mended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import structlog

from controlplane.aio.clock import Clock
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.snapshot import Snapshot
from controlplane.controller_manager import evictions_and_losses, release
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.runner import Again
from controlplane.model import failure, times
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.task import ENDED
from controlplane.store import keys
from controlplane.store.transaction import Item

log = structlog.get_logger(__name__)

_AT_ONCE = 200


class Strays:
    name = "strays"
    kind = "Controller"

    def __init__(self, ledgers: Ledgers, writer: ControllerWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock

    def every_key(self) -> Iterable[str]:
        return list(self._ledgers.strays)

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        strays = self._ledgers.strays
        return [order for order in touched.orders if order in strays] if strays else []

    async def reconcile(self, key: str) -> Again | None:
        places = self._ledgers.strays.get(key)
        if not places or not self._over(key):
            return None
        items = list(islice(self._ends(places, self._ledgers.cache.snapshot), _AT_ONCE))
        if not items:
            return None
        log.warning("ending placements of an order that is final or gone", order=key, fulfilments=len(items))
        await self._writer.write(items)
        return Again(after_seconds=0.0) if len(items) == _AT_ONCE else None

    def _over(self, order: str) -> bool:
        """A recurring order is never placed itself, so that its strays have no order to wait for either."""
        snapshot = self._ledgers.cache.snapshot
        if not snapshot.has(keys.ORDERS, order) or order in self._ledgers.templates:
            return True
        status = snapshot.order_status(order)
        return status is not None and status.phase in FINAL_ORDER

    def _ends(self, places: Iterable[tuple[str, str]], snapshot: Snapshot) -> Iterator[Item]:
        """The next write for each: a release after a reported end, else the wish to stop, once."""
        now, epoch = times.show(self._clock.wall()), self._writer.epoch
        for place in sorted(places):
            entry = snapshot.get(keys.DESIRED, *place)
            live = evictions_and_losses.live_at(entry, snapshot) if entry is not None else None
            if live is None:
                continue
            if live.observed is not None and live.observed.phase in ENDED:
                yield release.ended_by_report(live, None, epoch=epoch, now=now).item
            elif live.fulfilment.want != "stop":
                yield release.stop(live.fulfilment, failure.CANCELLED, epoch=epoch, revision=live.revision)
