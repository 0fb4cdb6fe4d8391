"""Deadlines: the waiting tasks of an order that cannot make the deadline any more, and when to look again. Pure."""

from __future__ import annotations

from typing import NamedTuple

from controlplane.cache.ledger import OrderLedger
from controlplane.model import deadline


class Late(NamedTuple):
    """Jobs whose waiting tasks are too late; whether the deadline itself has passed; the next moment of either."""

    jobs: tuple[str, ...] = ()
    passed: bool = False
    following: str | None = None


NEVER = Late()


def look(ledger: OrderLedger, now: str) -> Late:
    order = ledger.order
    end = deadline.moment(order)
    if end is None or ledger.ending:
        return NEVER
    late: list[str] = []
    coming: list[str] = []
    for resolved in ledger.resolved.jobs:
        name = resolved.job.name
        if ledger.jobs[name].waiting() and not ledger.blocked(name):
            if deadline.is_late(order, resolved.job, now):
                late.append(name)
            else:
                coming.append(deadline.latest_start(order, resolved.job) or end)
    passed = end < now
    if ledger.live and not passed:
        coming.append(end)
    return Late(tuple(late), passed, min(coming, default=None))
