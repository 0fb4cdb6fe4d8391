"""Totals: counts of processed, waiting and running work, and rates; kept in a record by the leader.

`Processed` counts ended work. `closed` are the tasks of ended orders: a new leader goes on from `closed` and
`revision`, so that no end is counted twice. `tasks` also counts the ended tasks of open orders.
"""

from __future__ import annotations

from collections import deque

import msgspec

from controlplane.model.bounds import Count, Rate, Revision, TimeOrEmpty
from controlplane.model.object import Object, Part
from controlplane.model.order import Counts, OrderStatus

SHORT_SECONDS, LONG_SECONDS = 10.0, 60.0


class Processed(msgspec.Struct, frozen=True, kw_only=True):
    """The number of ends, by outcome."""

    total: Count = 0
    succeeded: Count = 0
    failed: Count = 0
    cancelled: Count = 0

    def plus(self, other: Processed) -> Processed:
        return Processed(
            total=self.total + other.total,
            succeeded=self.succeeded + other.succeeded,
            failed=self.failed + other.failed,
            cancelled=self.cancelled + other.cancelled,
        )


class Rates(Part, frozen=True, kw_only=True):
    """Ends a second."""

    orders_10s: Rate = 0.0
    orders_1m: Rate = 0.0
    tasks_10s: Rate = 0.0
    tasks_1m: Rate = 0.0


class TargetTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Busy targets have placed work; free targets are Ready without any."""

    total: Count = 0
    ready: Count = 0
    busy: Count = 0
    free: Count = 0


class Totals(Object, tag="Totals", omit_defaults=False, frozen=True, kw_only=True):
    """`status/totals`. All ends up to `revision` are counted."""

    epoch: Revision
    revision: Revision = 0
    at: TimeOrEmpty = ""
    orders: Processed = Processed()
    tasks: Processed = Processed()
    closed: Processed = Processed()
    open_orders: Count = 0
    queued: Count = 0
    placed: Count = 0
    running: Count = 0
    held: Count = 0
    targets: TargetTotals = TargetTotals()
    rates: Rates = Rates()


class OrderEnds(msgspec.Struct, frozen=True, kw_only=True):
    """Ended orders, and the tasks of ended orders."""

    orders: Processed = Processed()
    tasks: Processed = Processed()

    def plus(self, other: OrderEnds) -> OrderEnds:
        return OrderEnds(orders=self.orders.plus(other.orders), tasks=self.tasks.plus(other.tasks))


def end_of(status: OrderStatus) -> OrderEnds:
    """The contribution of an order's end."""
    order = Processed(
        total=1,
        succeeded=int(status.phase == "Succeeded"),
        failed=int(status.phase == "Failed"),
        cancelled=int(status.phase == "Cancelled"),
    )
    return OrderEnds(orders=order, tasks=processed(status.counts))


def processed(counts: Counts) -> Processed:
    """The ended tasks."""
    return Processed(
        total=counts.succeeded + counts.failed + counts.cancelled,
        succeeded=counts.succeeded,
        failed=counts.failed,
        cancelled=counts.cancelled,
    )


class Meter:
    """Rates from samples of running totals: (seconds, orders, tasks), the oldest of the last minute first."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque()

    def sample(self, at: float, orders: int, tasks: int) -> Rates:
        self._samples.append((at, orders, tasks))
        while len(self._samples) > 2 and self._samples[1][0] <= at - LONG_SECONDS:
            self._samples.popleft()
        orders_10s, tasks_10s = self._over(SHORT_SECONDS, at)
        orders_1m, tasks_1m = self._over(LONG_SECONDS, at)
        return Rates(orders_10s=orders_10s, orders_1m=orders_1m, tasks_10s=tasks_10s, tasks_1m=tasks_1m)

    def _over(self, seconds: float, at: float) -> tuple[float, float]:
        """Over the time, or since the first sample while there were fewer.

        Sampling stops only without changes, so that the newest sample that is old enough gives the count at the start
        of the time, however much older the sample is.
        """
        _, now_orders, now_tasks = self._samples[-1]
        began, orders, tasks = self._samples[0]
        for sample in self._samples:
            if sample[0] > at - seconds:
                break
            began, orders, tasks = sample
        passed = min(max(at - began, 1.0), seconds)
        return round((now_orders - orders) / passed, 2), round((now_tasks - tasks) / passed, 2)
