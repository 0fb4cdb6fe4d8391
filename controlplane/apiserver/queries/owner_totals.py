"""Totals for a caller who may see the orders of some owners only: counted from those orders, as far as etcd keeps them.

The cost grows with the orders of these owners, never with those of others. Counting runs in a thread over a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from controlplane.aio.thread_team import QUESTIONS
from controlplane.apiserver.fresh_reads import order_status
from controlplane.apiserver.queries.views.owner_index import OrderIndex
from controlplane.cache.snapshot import Snapshot
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import Counts
from controlplane.model.totals import OrderEnds, Totals, end_of, processed
from controlplane.store import keys


class _UnstartedOrder(msgspec.Struct):
    """The part of an order without status that is counted; a recurring order has no tasks."""

    tasks_total: int = 0
    schedule: msgspec.Raw | None = None


_unstarted = msgspec.json.Decoder(_UnstartedOrder)


async def totals_of_owners(snapshot: Snapshot, index: OrderIndex, owners: frozenset[str]) -> Totals:
    return await QUESTIONS.run(count_orders, snapshot, index.of_owners(owners))


def count_orders(snapshot: Snapshot, identities: Iterable[str]) -> Totals:
    ended, open_orders, tasks = OrderEnds(), 0, Counts()
    for identity in identities:
        status = order_status(snapshot, identity)
        if status is not None and status.phase in FINAL_ORDER:
            ended = ended.plus(end_of(status))
            continue
        counts = status.counts if status is not None else _pending(snapshot, identity)
        if counts is not None:
            open_orders += 1
            tasks = _sum(tasks, counts)
    return Totals(
        epoch=0,
        revision=snapshot.revision,
        orders=ended.orders,
        tasks=ended.tasks.plus(processed(tasks)),
        closed=ended.tasks,
        open_orders=open_orders,
        queued=tasks.pending,
        placed=tasks.placed,
        running=tasks.running,
        held=tasks.held,
    )


def _pending(snapshot: Snapshot, identity: str) -> Counts | None:
    """The counts of an order without status; None for an order that is gone, unreadable or recurring."""
    entry = snapshot.get(keys.ORDERS, identity)
    try:
        order = _unstarted.decode(entry.stored.value) if entry is not None else None
    except msgspec.MsgspecError:
        return None
    return None if order is None or order.schedule is not None else Counts(pending=order.tasks_total)


def _sum(left: Counts, right: Counts) -> Counts:
    fields = Counts.__struct_fields__
    return Counts(**{name: getattr(left, name) + getattr(right, name) for name in fields})
