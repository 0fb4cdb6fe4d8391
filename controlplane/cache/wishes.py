"""Wishes of users about single tasks of an order: cancel, move, release. Applied to the ledgers of the jobs.

A wish stays in the order, so that a rebuilt ledger comes to the same result. Placed tasks are not touched here: the
leader stops them and writes how they end.
"""

from __future__ import annotations

from collections.abc import Mapping

from controlplane.cache.job_ledger import JobLedger
from controlplane.cache.placement_hint import PlacementHint
from controlplane.model.order import Order
from controlplane.model.task import TaskEvent, TaskState


def heed(order: Order, jobs: Mapping[str, JobLedger]) -> None:
    """Applies all wishes to all waiting tasks."""
    if order.releases:
        for name, job in jobs.items():
            for index in list(job.tasks_in(TaskState.HELD)):
                if released(order, name, index, job.held_at.get(index, 0)):
                    job.move_waiting(index, TaskEvent.RELEASE)
    for move in order.moves:
        moved = jobs.get(move.job)
        if moved is not None and move.to and 0 <= move.index < moved.count:
            _send(moved, move.index, move.attempt, move.to)
    for selection in order.cancel_tasks:
        job_ledger = jobs.get(selection.job)
        if job_ledger is not None:
            job_ledger.end_waiting(TaskEvent.CALL_OFF, selection.index)


def heed_one(order: Order, name: str, job: JobLedger, index: int) -> None:
    """Applies all wishes to a task that began to wait."""
    if released(order, name, index, job.held_at.get(index, 0)):
        job.move_waiting(index, TaskEvent.RELEASE)
    for move in order.moves:
        if move.to and (move.job, move.index) == (name, index):
            _send(job, index, move.attempt, move.to)
    if cancelled(order, name, index):
        job.end_waiting(TaskEvent.CALL_OFF, index)


def _send(job: JobLedger, index: int, attempt: int, to: str) -> None:
    """To the target that a user named; only for the attempt that follows the attempt to be moved."""
    if job.attempt(index) == attempt and job.move_waiting(index, TaskEvent.SEND):
        job.set_hint(index, PlacementHint(job.hint(index).avoid, to))


def cancelled(order: Order, name: str, index: int) -> bool:
    """Whether the order's user wants the task to end."""
    if not order.cancel_tasks:
        return False
    return any(wish.job == name and wish.index in (None, index) for wish in order.cancel_tasks)


def released(order: Order, name: str, index: int, held_at: int) -> bool:
    return any(
        held_at <= wish.until and wish.job in ("", name) and wish.index in (None, index) for wish in order.releases
    )


def moved(order: Order, name: str, index: int, attempt: int) -> bool:
    """Whether exactly this attempt is to leave its target."""
    if not order.moves:
        return False
    return any((wish.job, wish.index, wish.attempt) == (name, index, attempt) for wish in order.moves)


def excused(order: Order, jobs: Mapping[str, JobLedger]) -> int:
    """The number of tasks that were cancelled on request of the user."""
    if not order.cancel_tasks:
        return 0
    whole = {wish.job for wish in order.cancel_tasks if wish.index is None and wish.job in jobs}
    single = {(wish.job, wish.index) for wish in order.cancel_tasks if wish.index is not None and wish.job in jobs}
    gone = (TaskState.CALLED_OFF, TaskState.CANCELLED)
    return sum(jobs[name].counts[state] for name in whole for state in gone) + sum(
        jobs[name].state[index] in gone for name, index in single if name not in whole and 0 <= index < jobs[name].count
    )
