"""The tasks of one order, page by page: from its ledger, what is live, and how attempts ended.

A task's position counts through the jobs of the order in their order, so that a page is found without a list of all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.apiserver.views.orders import status_in
from controlplane.cache.ledger import (
    CANCELLED,
    FAILED,
    FRESH,
    HELD,
    LIVE,
    ORPHAN,
    RETRY,
    SUCCEEDED,
    LiveFulfilment,
    OrderLedger,
)
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.dependencies import DEPENDENCY_FAILED
from controlplane.model.errors import Broken
from controlplane.model.fulfilment import Ended, EndedTask, ObservedTask
from controlplane.model.lifecycle import FINAL_ORDER, TaskPhase
from controlplane.model.order import Order, Resolved
from controlplane.wire.v1 import orders_pb2

# Reading more ends than this would hold up everybody else's requests.
_MANY = 1000

Place = tuple[str, int]
_PHASES = {
    FRESH: TaskPhase.PENDING,
    LIVE: TaskPhase.PLACED,
    RETRY: TaskPhase.PENDING,
    SUCCEEDED: TaskPhase.SUCCEEDED,
    FAILED: TaskPhase.FAILED,
    CANCELLED: TaskPhase.CANCELLED,
    HELD: TaskPhase.HELD,
    ORPHAN: TaskPhase.PENDING,
}
_DECIDED = {
    "done": TaskPhase.SUCCEEDED,
    "fail": TaskPhase.FAILED,
    "cancel": TaskPhase.CANCELLED,
    "retry": TaskPhase.PENDING,
    "hold": TaskPhase.HELD,
}
_NOT_STARTED = frozenset({TaskPhase.PENDING, TaskPhase.HELD})


@dataclass(frozen=True, slots=True)
class Page:
    tasks: list[Any]
    more: bool


async def page(
    ledgers: Ledgers, snapshot: Snapshot, order: Order, *, start: int, limit: int, waits: Mapping[str, str]
) -> Page:
    """`waits` tells why pending tasks wait, by job. A recurring order has none: those of its runs are theirs."""
    if order.schedule is not None:
        return Page([], False)
    resolved = ledgers.resolved(order)
    places = _places(resolved, start, limit)
    ledger = ledgers.orders.get(order.id)
    live = _live(ledger, places) if ledger is not None else {}
    entries = list(snapshot.all("status/ended", order.id))
    ends = _ends(entries, places) if len(entries) < _MANY else await asyncio.to_thread(_ends, entries, places)
    rest = _rest_of(snapshot, order, ledger)
    tasks = [_task(place, ledger, live.get(place), ends.get(place), rest) for place in places]
    for task in tasks:
        if task.phase == TaskPhase.PENDING and task.job in waits:
            task.reason = waits[task.job]
        if task.phase == TaskPhase.CANCELLED and not task.attempt and not order.cancel:
            # Nobody cancelled it, and it never began: a job that it waits for failed.
            task.reason = DEPENDENCY_FAILED
    return Page(tasks, start + len(places) < order.tasks_total)


def _places(resolved: Resolved, start: int, limit: int) -> dict[Place, None]:
    places: dict[Place, None] = {}
    before = 0
    for job in resolved.jobs:
        first = max(start - before, 0)
        last = min(start + limit - before, job.count)
        places.update(((job.job.name, index), None) for index in range(first, last))
        before += job.count
    return places


def _live(ledger: OrderLedger, places: Mapping[Place, None]) -> dict[Place, LiveFulfilment]:
    return {
        (task.job, task.index): live
        for live in ledger.live.values()
        for task in live.fulfilment.tasks
        if (task.job, task.index) in places
    }


def _ends(entries: Iterable[Entry], places: Mapping[Place, None]) -> dict[Place, tuple[EndedTask, Ended]]:
    """The last attempt's end of each task. Poison is stepped over."""
    found: dict[Place, tuple[EndedTask, Ended]] = {}
    for entry in entries:
        try:
            ended = entry.read(Ended)
        except Broken:
            continue
        for task in ended.tasks:
            place = (task.job, task.index)
            if place in places and (place not in found or found[place][0].attempt < task.attempt):
                found[place] = (task, ended)
    return found


def _rest_of(snapshot: Snapshot, order: Order, ledger: OrderLedger | None) -> TaskPhase:
    """The phase of tasks that never started, when no ledger tells: those of a final order never will."""
    status = status_in(snapshot.get("status/orders", order.id))
    final = status is not None and status.phase in FINAL_ORDER
    return TaskPhase.CANCELLED if final or order.cancel else TaskPhase.PENDING


def _task(
    place: Place,
    ledger: OrderLedger | None,
    live: LiveFulfilment | None,
    end: tuple[EndedTask, Ended] | None,
    rest: TaskPhase,
) -> Any:
    job, index = place
    message = orders_pb2.Task(job=job, index=index, phase=rest)
    if end is not None:
        task, ended = end
        message.phase = _DECIDED.get(task.decision, TaskPhase.FAILED)
        message.attempt = task.attempt
        message.target, message.fulfilment = ended.target, ended.id
        _say(message, task)
    if ledger is not None and job in ledger.jobs and index < ledger.jobs[job].count:
        message.phase = _PHASES[ledger.jobs[job].state[index]]
        message.attempt = ledger.jobs[job].attempt(index)
        rest = TaskPhase.CANCELLED if ledger.blocked(job) else rest
    if message.phase in _NOT_STARTED and rest == TaskPhase.CANCELLED:
        message.phase = rest
    if live is not None and message.phase == TaskPhase.PLACED:
        _show_live(message, live)
    if message.phase in _NOT_STARTED:
        message.ClearField("target")
        message.ClearField("fulfilment")
    return message


def _show_live(message: Any, live: LiveFulfilment) -> None:
    for field in ("exit_code", "reason", "percent", "artefacts"):
        message.ClearField(field)
    message.target, message.fulfilment = live.fulfilment.target, live.fulfilment.id
    for task in live.observed.tasks if live.observed is not None else ():
        if (task.job, task.index) == (message.job, message.index):
            if task.phase == "Running":
                message.phase = TaskPhase.RUNNING
            _say(message, task)


def _say(message: Any, task: EndedTask | ObservedTask) -> None:
    if task.exit_code is not None:
        message.exit_code = task.exit_code
    if task.percent is not None:
        message.percent = task.percent
    if task.reason:
        message.reason = task.reason
    message.artefacts.extend(task.artefacts)
