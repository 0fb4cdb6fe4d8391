"""Totals: how much was processed, how much waits and runs, how fast; kept in one record by the leader.

`Processed` counts what is over. `closed` are the tasks of orders that are over: with `revision`, it is what a new
leader goes on from, so that nothing is counted twice. The rest is what the record is for: `tasks` also counts the
ended tasks of orders under way.
"""

from __future__ import annotations

from collections import deque

import msgspec

from controlplane.model.bounds import Count, Rate, Revision, TimeOrEmpty
from controlplane.model.object import Object, Part
from controlplane.model.order import Counts, OrderStatus

SHORT_SECONDS, LONG_SECONDS = 10.0, 60.0


class Processed(msgspec.Struct, frozen=True, kw_only=True):
    """How many came to their end, and how."""

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
    """Busy targets have something placed on them; free ones are Ready and have not."""

    total: Count = 0
    ready: Count = 0
    busy: Count = 0
    free: Count = 0


class Totals(Object, tag="Totals", omit_defaults=False, frozen=True, kw_only=True):
    """`status/totals`. All that ended up to `revision` is counted."""

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


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """Orders that are over, and the tasks of these."""

    orders: Processed = Processed()
    tasks: Processed = Processed()

    def plus(self, other: Ends) -> Ends:
        return Ends(orders=self.orders.plus(other.orders), tasks=self.tasks.plus(other.tasks))


def end_of(status: OrderStatus) -> Ends:
    """What one order's end adds."""
    order = Processed(
        total=1,
        succeeded=int(status.phase == "Succeeded"),
        failed=int(status.phase == "Failed"),
        cancelled=int(status.phase == "Cancelled"),
    )
    return Ends(orders=order, tasks=processed(status.counts))


def processed(counts: Counts) -> Processed:
    """The tasks that are over."""
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
        """Over that time, or since the first sample while there was less of it.

        Whoever samples stops only while nothing changes, so that the newest sample that is old enough tells how many
        there were when the time began, however much older it is.
        """
        _, now_orders, now_tasks = self._samples[-1]
        began, orders, tasks = self._samples[0]
        for sample in self._samples:
            if sample[0] > at - seconds:
                break
            began, orders, tasks = sample
        passed = min(max(at - began, 1.0), seconds)
        return round((now_orders - orders) / passed, 2), round((now_tasks - tasks) / passed, 2)
