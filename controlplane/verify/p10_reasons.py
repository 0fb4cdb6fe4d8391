"""P10: every pending task has a reason, as the API shows it.

Counts are written at most once a second while reasons are computed when they are read, so an order in motion may show
numbers of two moments. `differs` tells which orders to ask for again; only what keeps differing is a violation.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.store import keys
from controlplane.verify.verdict import Tally, Verdict
from controlplane.wire.v1 import orders_pb2


def differs(order: orders_pb2.Order) -> bool:
    """Nothing of a cancelled or final order waits for a reason."""
    return not order.cancel and order.status.phase not in FINAL_ORDER and _pending(order) != _explained(order)


def judge(orders: Iterable[orders_pb2.Order]) -> Verdict:
    """Each order as it was read last."""
    tally = Tally("P10", "no order is open")
    for order in orders:
        tally.checked += 1
        if differs(order):
            why = f"{_pending(order)} tasks are pending, but reasons are given for {_explained(order)}"
            tally.broken(keys.order(order.id), order.revision, why)
    return tally.verdict()


def _pending(order: orders_pb2.Order) -> int:
    return int(order.status.counts.pending) if order.HasField("status") else int(order.tasks_total)


def _explained(order: orders_pb2.Order) -> int:
    return sum(int(reason.count) for reason in order.status.reasons)
