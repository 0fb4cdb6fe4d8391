"""Strays: ends what is placed though its order is final or gone.

No write of this system leaves a stray behind, but a person's hand or a defect may. The joblet is asked to stop it, and
its report releases it like any other; on a lost target `targets` gives it back. An order whose config cannot be read is
neither final nor gone: what it has stays until somebody mends the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import structlog

from controlplane.aio.clock import Clock
from controlplane.cache.ledger import ENDS
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.snapshot import Snapshot
from controlplane.controller_manager import leaving, release
from controlplane.controller_manager.runner import Again
from controlplane.model import failure, times
from controlplane.model.errors import Conflict
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import OrderStatus
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item

log = structlog.get_logger(__name__)

_AT_ONCE = 200


class Strays:
    name = "strays"

    def __init__(self, ledgers: Ledgers, writer: FencedWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock

    def every_key(self) -> Iterable[str]:
        return list(self._ledgers.strays)

    def concerned(self, touched: Touched) -> Iterable[str]:
        strays = self._ledgers.strays
        return [order for order in touched.orders if order in strays] if strays else []

    async def reconcile(self, key: str) -> Again | None:
        places = self._ledgers.strays.get(key)
        if not places or not self._over(key):
            return None
        items = list(islice(self._ends(places, self._ledgers.cache.snapshot), _AT_ONCE))
        if not items:
            return None
        log.warning("ending what is placed for an order that is final or gone", order=key, fulfilments=len(items))
        outcomes = await self._writer.write_all(items)
        await self._ledgers.cache.reached(max(outcome.revision for outcome in outcomes))
        if not all(outcome.succeeded for outcome in outcomes):
            raise Conflict("the stray moved on meanwhile")
        return Again(after_seconds=0.0) if len(items) == _AT_ONCE else None

    def _over(self, order: str) -> bool:
        """A recurring order is never placed itself, so that what claims to be of one has nothing to wait for either."""
        snapshot = self._ledgers.cache.snapshot
        if snapshot.get("config/orders", order) is None or order in self._ledgers.templates:
            return True
        entry = snapshot.get("status/orders", order)
        status = entry.sound(OrderStatus) if entry is not None else None
        return status is not None and status.phase in FINAL_ORDER

    def _ends(self, places: Iterable[tuple[str, str]], snapshot: Snapshot) -> Iterator[Item]:
        """The next write for each: a release where the joblet reported the end, else the wish to stop, once."""
        now, epoch = times.show(self._clock.wall()), self._writer.epoch
        for place in sorted(places):
            entry = snapshot.get("desired", *place)
            live = leaving.live_at(entry, snapshot) if entry is not None else None
            if live is None:
                continue
            if live.observed is not None and live.observed.phase in ENDS:
                yield release.ended_by_report(live, None, epoch=epoch, now=now).item
            elif live.fulfilment.want != "stop":
                yield release.stop(live.fulfilment, failure.CANCELLED, epoch=epoch, revision=live.revision)
