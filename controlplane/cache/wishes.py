"""What users wish of single tasks of an order: to cancel, to move, to release them. Told to the ledgers of its jobs.

A wish stays in the order, so that a ledger that is made anew comes to the same. What a target carries is not touched
here: that it stops, and how it ends, is the leader's to write.
"""

from __future__ import annotations

from collections.abc import Mapping

from controlplane.cache.detour import Detour
from controlplane.cache.job_ledger import CALLED_OFF, CANCELLED, FRESH, HELD, RETRY, JobLedger
from controlplane.model.order import Order


def heed(order: Order, jobs: Mapping[str, JobLedger]) -> None:
    """All wishes, for all tasks that wait."""
    if order.releases:
        for name, job in jobs.items():
            if job.counts[HELD]:
                for index in [at for at in job.held() if released(order, name, at, job.held_at.get(at, 0))]:
                    job.let_wait(index)
    for move in order.moves:
        moved = jobs.get(move.job)
        if moved is not None and move.to and 0 <= move.index < moved.count:
            _send(moved, move.index, move.attempt, move.to)
    for selection in order.cancel_tasks:
        job_ledger = jobs.get(selection.job)
        if job_ledger is not None:
            job_ledger.end_waiting(CALLED_OFF, selection.index)


def heed_one(order: Order, name: str, job: JobLedger, index: int) -> None:
    """The same for one task that began to wait."""
    if job.state[index] == HELD and released(order, name, index, job.held_at.get(index, 0)):
        job.let_wait(index)
    for move in order.moves:
        if move.to and (move.job, move.index) == (name, index):
            _send(job, index, move.attempt, move.to)
    if cancelled(order, name, index):
        job.end_waiting(CALLED_OFF, index)


def _send(job: JobLedger, index: int, attempt: int, to: str) -> None:
    """To the target that a user named; only the attempt that follows the one that was to leave."""
    if job.state[index] in (FRESH, RETRY) and job.attempt(index) == attempt:
        job.let_wait(index)
        job.send(index, Detour(job.detour(index).avoid, to))


def cancelled(order: Order, name: str, index: int) -> bool:
    """Whether the order's user wants the task to end."""
    if not order.cancel_tasks:
        return False
    return any(one.job == name and one.index in (None, index) for one in order.cancel_tasks)


def released(order: Order, name: str, index: int, held_at: int) -> bool:
    return any(held_at <= one.until and one.job in ("", name) and one.index in (None, index) for one in order.releases)


def moved(order: Order, name: str, index: int, attempt: int) -> bool:
    """Whether this very attempt is to leave the target where it is."""
    if not order.moves:
        return False
    return any((one.job, one.index, one.attempt) == (name, index, attempt) for one in order.moves)


def excused(order: Order, jobs: Mapping[str, JobLedger]) -> int:
    """How many tasks are cancelled because the user wanted it."""
    if not order.cancel_tasks:
        return 0
    whole = {one.job for one in order.cancel_tasks if one.index is None and one.job in jobs}
    single = {(one.job, one.index) for one in order.cancel_tasks if one.index is not None and one.job in jobs}
    gone = (CALLED_OFF, CANCELLED)
    return sum(jobs[name].counts[CALLED_OFF] + jobs[name].counts[CANCELLED] for name in whole) + sum(
        jobs[name].state[index] in gone for name, index in single if name not in whole and 0 <= index < jobs[name].count
    )
