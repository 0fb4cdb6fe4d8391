"""The moment of an order's deadline, and the latest start of a task. Counted from the creation of the order."""

from __future__ import annotations

from datetime import timedelta

from controlplane.model import times
from controlplane.model.job import Job
from controlplane.model.order import Order


def moment(order: Order, *, before: float = 0.0) -> str | None:
    """So many seconds before the deadline; None without a deadline, or beyond the calendar."""
    if order.deadline is None:
        return None
    try:
        return times.show(times.parse(order.created, "created") + timedelta(seconds=float(order.deadline) - before))
    except OverflowError:
        return None


def latest_start(order: Order, job: Job) -> str | None:
    """A later task may not be over in time; a job without a time limit may begin until the last moment."""
    return moment(order, before=float(job.time_limit or 0))


def is_late(order: Order, job: Job, now: str) -> bool:
    """Whether a task that begins now may not be over in time."""
    if order.deadline is None:
        return False
    latest = latest_start(order, job)
    return latest is not None and latest < now
