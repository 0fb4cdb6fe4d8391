"""The part of P9 about orders: every accepted order makes progress.

A Ready target reports a placed task within a lease. The leader handles every reported end, and an order without a task
left to run becomes final. While a restore waits for joblets, leaders wait too, so orders are not judged.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.model import silence
from controlplane.model.task import FINAL_TASK, TaskEvent, phase_after
from controlplane.store import keys
from controlplane.verify.present import Accepted, Present
from controlplane.verify.suspicion import Suspicion

# A leader handles ends within milliseconds; a busy or new leader may need seconds.
TAKEN_UP_SECONDS = 15.0
_READY = "Ready"


class UnreportedPlacements:
    """Suspects placements that a Ready target never reported."""

    promise = "P9"

    def subjects(self, present: Present) -> Iterable[str]:
        return present.placements

    def suspect(self, present: Present, subject: str) -> Suspicion | None:
        placement = present.placements.get(subject)
        if placement is None or subject in present.reports or present.restoring:
            return None
        target = placement.fulfilment.target
        status = present.targets.get(target)
        if status is None or status.phase != _READY:
            return None
        why = f"was placed, but the target {target}, which is Ready, has not reported it"
        return Suspicion(subject, placement.revision, why, _lease_seconds(present, target))


def _lease_seconds(present: Present, target: str) -> float:
    """The time in which a Ready target must report; longer without a session, by the silence that settings allow."""
    settings = silence.fitting(present.settings)
    session = present.sessions.get(target)
    if session is not None and session.lease_seconds:
        return float(session.lease_seconds)
    return silence.lease_seconds(settings) + (0.0 if target in present.sessions else float(settings.target_suspect))


class UnhandledEnds:
    """Suspects placements that were reported as ended and are still desired."""

    promise = "P9"

    def subjects(self, present: Present) -> Iterable[str]:
        return [key for key in present.placements if key in present.reports]

    def suspect(self, present: Present, subject: str) -> Suspicion | None:
        placement, report = present.placements.get(subject), present.reports.get(subject)
        if placement is None or report is None or not report.over or present.restoring:
            return None
        order = placement.fulfilment.order
        if order not in present.orders or present.is_over(order):
            return None
        if _all_ended(present, order, present.orders[order]):
            return None
        why = f"was reported as ended, but order {order} does not take that up"
        return Suspicion(subject, report.revision, why, TAKEN_UP_SECONDS)


class UnfinishedOrders:
    """Suspects orders that have no task left to run and are not final."""

    promise = "P9"

    def subjects(self, present: Present) -> Iterable[str]:
        return [name for name in present.orders if not present.is_over(name)]

    def suspect(self, present: Present, subject: str) -> Suspicion | None:
        order = present.orders.get(subject)
        if order is None or order.template or present.is_over(subject) or present.restoring:
            return None
        why = _nothing_left(present, subject, order)
        if not why:
            return None
        status = present.statuses.get(subject)
        phase = status.phase if status is not None else "Pending"
        revision = max([order.revision, *(present.reports[key].revision for key in present.placed_of.get(subject, ()))])
        return Suspicion(keys.order(subject), revision, f"{why}, but it is {phase}", TAKEN_UP_SECONDS)


def _nothing_left(present: Present, name: str, order: Accepted) -> str:
    """The reason why the order has to be final; empty while a task may still run."""
    if _all_ended(present, name, order):
        return f"all {order.tasks} tasks have ended"
    if present.placed_of.get(name):
        return ""
    if order.cancel:
        return "it is cancelled and nothing of it is placed"
    if any(decision == TaskEvent.FAIL_ORDER for _, decision in present.decisions.get(name, {}).values()):
        return "it failed with one of its tasks and nothing of it is placed"
    status = present.statuses.get(name)
    if status is None:
        return ""
    counts = status.counts
    over = counts.succeeded + counts.failed + counts.cancelled
    return f"all {over} tasks are counted as ended" if 0 < order.tasks == over else ""


def _all_ended(present: Present, name: str, order: Accepted) -> bool:
    """Whether each task has a final end on record, or a reported end that the leader has not handled yet."""
    placed = present.placed_of.get(name, ())
    if not all(key in present.reports and present.reports[key].over for key in placed):
        return False
    tasks = {
        task for task, (_, decision) in present.decisions.get(name, {}).items() if phase_after(decision) in FINAL_TASK
    }
    for key in placed:
        tasks.update((task.job, task.index) for task in present.placements[key].fulfilment.tasks)
    return 0 < order.tasks <= len(tasks)
