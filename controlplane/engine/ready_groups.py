"""Groups of an order's tasks that may be placed now, how they rank, and when time alone changes that."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.placement_hint import ANYWHERE, PlacementHint
from controlplane.engine.service import NO_DEADLINE, Rank
from controlplane.model import deadline, times
from controlplane.model.order import ResolvedJob

# Moments are written in milliseconds.
_LEAST = timedelta(milliseconds=1)


def ready_groups(ledger: OrderLedger, moment: str) -> Iterator[tuple[int, ResolvedJob, PlacementHint, int]]:
    """The groups of tasks which may be placed: position, job, hint, number of tasks. Groups with a hint come last.

    Tasks which could not meet the deadline any more are left out, and will fail.
    """
    apart: list[tuple[ResolvedJob, PlacementHint, int]] = []
    for position, resolved in enumerate(ledger.resolved.jobs):
        name = resolved.job.name
        ready = 0 if deadline.is_late(ledger.order, resolved.job, moment) else ledger.ready(name, moment)
        if ready > 0 and ledger.jobs[name].hints:
            (_, ready), *others = ledger.jobs[name].parts(moment)
            apart.extend((resolved, hint, count) for hint, count in others)
        if ready > 0:
            yield position, resolved, ANYWHERE, ready
    for position, (resolved, hint, count) in enumerate(apart, len(ledger.resolved.jobs)):
        yield position, resolved, hint, count


def next_time(ledger: OrderLedger, moment: str) -> str | None:
    """The next moment at which time alone changes which tasks of the order may be placed: a time to begin at, the end
    of a back-off, or a deadline which can no longer be met."""
    following = ledger.next_time(moment)
    if ledger.order.deadline is not None:
        latest = (deadline.latest_start(ledger.order, resolved.job) for resolved in ledger.resolved.jobs)
        late = (_just_after(start) for start in latest if start is not None and start >= moment)
        following = min((each for each in (following, *late) if each is not None), default=None)
    if following is not None:
        times.parse(following, "time of the order")
    return following


def _just_after(moment: str) -> str | None:
    """The next moment which can be written; None at the end of the calendar."""
    try:
        return times.show(times.parse(moment, "moment") + _LEAST)
    except OverflowError:
        return None


def rank_of(ledger: OrderLedger, position: int) -> Rank:
    order = ledger.order
    return (deadline_of(order.created, order.deadline), order.created, order.id, position)


def deadline_of(created: str, seconds: float | None) -> str:
    """The moment of the deadline; without a deadline a text which sorts after all moments."""
    if seconds is None:
        return NO_DEADLINE
    try:
        return times.show(times.parse(created, "created") + timedelta(seconds=float(seconds)))
    except OverflowError:
        return NO_DEADLINE
