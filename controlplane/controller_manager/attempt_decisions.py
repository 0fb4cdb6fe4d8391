"""Decisions about ended attempts: the circumstances are read off the order's ledger, `model/failure` decides."""

from __future__ import annotations

from controlplane.cache import wishes
from controlplane.cache.ledger import OrderLedger
from controlplane.model import deadline, failure
from controlplane.model.failure import Circumstances
from controlplane.model.fulfilment import EndedTask, Fulfilment, ObservedTask
from controlplane.model.task import AttemptPhase

# The end of a neighbour in the same fulfilment, which was to be stopped.
_ALONG = "Evicted"


def end(task: ObservedTask, ledger: OrderLedger | None, *, target: str, now: str, cancelled: bool = False) -> EndedTask:
    """`cancelled` counts whatever the ledger says, which may be gone with the order."""
    if task.phase == AttemptPhase.SUCCEEDED or ledger is None:
        return failure.end(task, Circumstances(target=target, now=now, cancelled=cancelled))
    return failure.end(task, circumstances(task, ledger, target=target, now=now, cancelled=cancelled))


def circumstances(
    task: ObservedTask, ledger: OrderLedger, *, target: str, now: str, cancelled: bool = False
) -> Circumstances:
    order = ledger.order
    job = next((resolved.job for resolved in ledger.resolved.jobs if resolved.job.name == task.job), None)
    tasks = ledger.jobs.get(task.job)
    return Circumstances(
        order=order.id,
        target=target,
        now=now,
        of_order=order.failure_policies,
        of_job=job.failure_policies if job is not None else (),
        retried=tasks.retried(task.index) if tasks is not None else {},
        avoid=tasks.hint(task.index).avoid if tasks is not None else (),
        until=deadline.latest_start(order, job) if job is not None else None,
        cancelled=cancelled or ledger.ending or wishes.cancelled(order, task.job, task.index),
        moved=wishes.moved(order, task.job, task.index, task.attempt),
    )


def why_stopped(task: ObservedTask, wanted: Fulfilment, ledger: OrderLedger | None) -> str:
    """The leader knows why it stopped the attempt, whatever reason the joblet reports."""
    why = wanted.why_stop(task.job, task.index) or wanted.reason
    if wanted.want != "stop" or len(wanted.tasks) == 1 or ledger is None:
        return why
    if wanted.reason == failure.MOVED and not wishes.moved(ledger.order, task.job, task.index, task.attempt):
        return _ALONG
    gone = ledger.ending or wishes.cancelled(ledger.order, task.job, task.index)
    return _ALONG if wanted.reason == failure.CANCELLED and not gone else wanted.reason
