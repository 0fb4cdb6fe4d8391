"""Work that has to leave a target: what is written for each fulfilment there. Pure.

From a target that is drained or was deleted, work is evicted: its joblet is asked to stop it, and the end it reports
makes it a retry. From a lost target it is given back as TargetLost, unless the joblet is there again: the write
compares that no session is, so that a joblet that returns knows of everything that was taken from it. What may still
hold unique resources stays there (`holders`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controlplane.cache.ledger import LiveFulfilment, OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.controller_manager import release
from controlplane.controller_manager.health import Sight
from controlplane.model import times
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import Fulfilment, Observed
from controlplane.model.quantity import Number
from controlplane.store import keys
from controlplane.store.transaction import Item, absent

# Each fulfilment on a target, and the ledger of its order; None when that is gone.
Placed = Iterator[tuple[LiveFulfilment, OrderLedger | None]]

EVICTED = "Evicted"
LOST = "TargetLost"


def placed_on(target: str, ledgers: Ledgers) -> Placed:
    snapshot = ledgers.cache.snapshot
    for entry in snapshot.all("desired", target):
        live = live_at(entry, snapshot)
        if live is not None:
            yield live, ledgers.orders.get(live.fulfilment.order)


def live_at(entry: Entry, snapshot: Snapshot) -> LiveFulfilment | None:
    """What is placed under this key, with the newest report about it; None when it cannot be read."""
    fulfilment = entry.sound(Fulfilment)
    if fulfilment is None:
        return None
    live = LiveFulfilment(fulfilment, entry.revision)
    seen = snapshot.get("inventory", *entry.parts)
    if seen is not None:
        live.observed, live.observed_revision = seen.sound(Observed), seen.revision
    return live


def evictions(placed: Placed, *, epoch: int) -> Iterator[Item]:
    """Asks for the stop of all that is not being stopped yet."""
    for live, _ in placed:
        if live.fulfilment.want != "stop":
            yield release.stop(live.fulfilment, EVICTED, epoch=epoch, revision=live.revision)


def losses(placed: Placed, *, epoch: int, now: str) -> Iterator[Item]:
    for live, ledger in placed:
        cancelled = ledger is None or ledger.order.cancel
        item = release.ended_by_loss(live, LOST, cancelled=cancelled, epoch=epoch, now=now, ledger=ledger).item
        nobody = absent(keys.live(live.fulfilment.target))
        yield Item(compares=(*item.compares, nobody), then=item.then, many=item.many)


def evicts_in(sight: Sight, timeout: Number, now: datetime) -> float | None:
    """Seconds until what is still placed is evicted; not above zero when it is now. None when nothing has to leave.

    A drain counts from when a leader first saw the wish, so that a change of leaders does not start it anew.
    """
    if sight.live is None or not sight.placed:
        return None
    if sight.target is None:
        return 0.0
    if not sight.target.drain or sight.before is None or not sight.before.drain_since:
        return None
    limit = timeout if sight.target.drain_timeout is None else sight.target.drain_timeout
    try:
        began = times.parse(sight.before.drain_since, "drain_since")
    except Invalid:
        return 0.0
    return float(limit) - (now - began).total_seconds()
