"""Work that has to leave a target: the writes for each fulfilment there. Pure.

Work on a drained or deleted target is evicted: the joblet is asked to stop the fulfilment, and the reported end makes a
retry. Work on a lost target is given back as TargetLost, unless the joblet has returned: the write compares that no
session exists, so that a returning joblet learns of all work that was taken away. Work that may still hold unique
resources stays there (`unique_holders`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from controlplane.cache.ledger import LiveFulfilment, OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.controller_manager import release
from controlplane.controller_manager.target_phase import TargetState
from controlplane.model import times
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.quantity import Number
from controlplane.store import keys
from controlplane.store.transaction import Item, absent

# Each fulfilment on a target, and the ledger of its order; None when the order is gone.
Placed = Iterator[tuple[LiveFulfilment, OrderLedger | None]]

EVICTED = "Evicted"
LOST = "TargetLost"


def placed_on(target: str, ledgers: Ledgers) -> Placed:
    snapshot = ledgers.cache.snapshot
    for entry in snapshot.all(keys.DESIRED, target):
        live = live_at(entry, snapshot)
        if live is not None:
            yield live, ledgers.orders.get(live.fulfilment.order)


def live_at(entry: Entry[Fulfilment], snapshot: Snapshot) -> LiveFulfilment | None:
    """The fulfilment under this key, with the newest report; None for poison."""
    fulfilment = entry.readable()
    if fulfilment is None:
        return None
    live = LiveFulfilment(fulfilment, entry.revision)
    seen = snapshot.get(keys.INVENTORY, *entry.parts)
    if seen is not None:
        live.observed, live.observed_revision = seen.readable(), seen.revision
    return live


def evictions(placed: Placed, *, epoch: int) -> Iterator[Item]:
    """Asks for the stop of all fulfilments that are not being stopped yet."""
    for live, _ in placed:
        if live.fulfilment.want != "stop":
            yield release.stop(live.fulfilment, EVICTED, epoch=epoch, revision=live.revision)


def losses(placed: Placed, *, epoch: int, now: str) -> Iterator[Item]:
    for live, ledger in placed:
        cancelled = ledger is None or ledger.order.cancel
        item = release.ended_by_loss(live, LOST, cancelled=cancelled, epoch=epoch, now=now, ledger=ledger).item
        nobody = absent(keys.live(live.fulfilment.target))
        yield Item(compares=(*item.compares, nobody), then=item.then, many=item.many)


def evicts_in(state: TargetState, timeout: Number, now: datetime) -> float | None:
    """Seconds until the remaining work is evicted; 0 or less means now. None when no work has to leave.

    A drain counts from when a leader first saw the wish, so that a change of leaders does not start the time anew.
    """
    if state.live is None or not state.placed:
        return None
    if state.target is None:
        return 0.0
    if not state.target.drain or state.before is None or not state.before.drain_since:
        return None
    limit = timeout if state.target.drain_timeout is None else state.target.drain_timeout
    try:
        began = times.parse(state.before.drain_since, "drain_since")
    except Invalid:
        return 0.0
    return float(limit) - (now - began).total_seconds()
