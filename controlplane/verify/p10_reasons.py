"""P10: every pending task has a reason in the API's answer.

Counts are written at most once a second while reasons are computed at every read, so a changing order may show numbers
of two moments. `differs` tells which orders to read again; an order that keeps differing is a violation.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.store import keys
from controlplane.verify.promise_verdicts import PromiseVerdict, Tally
from controlplane.wire.v1 import orders_pb2


def differs(order: orders_pb2.Order) -> bool:
    """Whether pending tasks and reasons differ in number; never for a cancelled or final order."""
    return not order.cancel and order.status.phase not in FINAL_ORDER and _pending(order) != _explained(order)


def judge(orders: Iterable[orders_pb2.Order]) -> PromiseVerdict:
    """Judges each order as last read."""
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
