"""The tasks of one order, page by page: from its ledger, what is live, and how attempts ended.

A task's position counts through the jobs of the order in their order, so that a page is found without a list of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.aio.thread_team import QUESTIONS
from controlplane.apiserver.views.orders import status_in
from controlplane.cache import wishes
from controlplane.cache.job_ledger import (
    CALLED_OFF,
    CANCELLED,
    EXPIRED,
    FAILED,
    FRESH,
    HELD,
    LIVE,
    ORPHAN,
    RETRY,
    SUCCEEDED,
)
from controlplane.cache.ledger import LiveFulfilment, OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.engine.reasons import Part
from controlplane.model import texts
from controlplane.model.dependencies import DEPENDENCY_FAILED
from controlplane.model.errors import Broken
from controlplane.model.failure import DEADLINE_EXCEEDED, ORDER_FAILED
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
    CALLED_OFF: TaskPhase.CANCELLED,
    EXPIRED: TaskPhase.FAILED,
}
_DECIDED = {
    "done": TaskPhase.SUCCEEDED,
    "ignore": TaskPhase.SUCCEEDED,
    "fail": TaskPhase.FAILED,
    "fail_order": TaskPhase.FAILED,
    "cancel": TaskPhase.CANCELLED,
    "retry": TaskPhase.PENDING,
    "move": TaskPhase.PENDING,
    "hold": TaskPhase.HELD,
}
_NOT_STARTED = frozenset({TaskPhase.PENDING, TaskPhase.HELD})
_DECISION_FIELDS = ("decision", "policy", "why", "not_before", "avoid")


@dataclass(frozen=True, slots=True)
class Page:
    tasks: list[Any]
    more: bool


async def page(
    ledgers: Ledgers, snapshot: Snapshot, order: Order, *, start: int, limit: int, waits: Mapping[Part, str]
) -> Page:
    """`waits` tells why pending tasks wait, by job and where they may go.

    A recurring order has no tasks: those of its runs are theirs.
    """
    if order.schedule is not None:
        return Page([], False)
    resolved = ledgers.resolved(order)
    places = _places(resolved, start, limit)
    ledger = ledgers.orders.get(order.id)
    live = _live(ledger, places) if ledger is not None else {}
    entries = list(snapshot.all("status/ended", order.id))
    found = _ends(entries, places) if len(entries) < _MANY else await QUESTIONS.run(_ends, entries, places)
    rest = _rest_of(snapshot, order, found.doomed)
    tasks = [_task(place, ledger, live.get(place), found.ends.get(place), rest) for place in places]
    for task in tasks:
        if task.phase == TaskPhase.PENDING and ledger is not None:
            part = (task.job, ledger.jobs[task.job].detour(task.index))
            task.reason = waits.get(part, task.reason)
        if task.phase in (TaskPhase.CANCELLED, TaskPhase.FAILED) and not _by_its_attempt(task):
            task.reason = _why_over(task, rest)
            for field in _DECISION_FIELDS:
                task.ClearField(field)
    return Page(tasks, start + len(places) < order.tasks_total)


def _by_its_attempt(task: Any) -> bool:
    """Whether what was decided at the end of its last attempt is what it is now."""
    return bool(task.HasField("decision") and _DECIDED.get(task.decision) == task.phase)


def _why_over(task: Any, rest: Rest) -> str:
    """Of a task that waited, and is over without another attempt."""
    if task.phase == TaskPhase.FAILED:
        return DEADLINE_EXCEEDED
    if rest.order.cancel or wishes.cancelled(rest.order, task.job, task.index):
        return ""
    return ORDER_FAILED if rest.doomed else DEPENDENCY_FAILED


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


@dataclass(frozen=True, slots=True)
class Found:
    """The last attempt's end of each task; whether one of any task failed the whole order."""

    ends: dict[Place, tuple[EndedTask, Ended]]
    doomed: bool


@dataclass(frozen=True, slots=True)
class Rest:
    """What tasks are that wait, as far as their order says: those of a final order never get another attempt."""

    order: Order
    over: bool
    expired: frozenset[str]
    doomed: bool

    def phase(self, job: str, index: int) -> TaskPhase:
        late = job in self.expired and not wishes.cancelled(self.order, job, index)
        return TaskPhase.FAILED if late else TaskPhase.CANCELLED


def _ends(entries: Iterable[Entry], places: Mapping[Place, None]) -> Found:
    """Poison is stepped over."""
    found: dict[Place, tuple[EndedTask, Ended]] = {}
    doomed = False
    for entry in entries:
        try:
            ended = entry.read(Ended)
        except Broken:
            continue
        for task in ended.tasks:
            doomed = doomed or task.decision == "fail_order"
            place = (task.job, task.index)
            if place in places and (place not in found or found[place][0].attempt < task.attempt):
                found[place] = (task, ended)
    return Found(found, doomed)


def _rest_of(snapshot: Snapshot, order: Order, doomed: bool) -> Rest:
    status = status_in(snapshot.get("status/orders", order.id))
    final = status is not None and status.phase in FINAL_ORDER
    expired = frozenset(status.expired) if status is not None else frozenset()
    return Rest(order, final or order.cancel or doomed, expired, doomed)


def _task(
    place: Place,
    ledger: OrderLedger | None,
    live: LiveFulfilment | None,
    end: tuple[EndedTask, Ended] | None,
    rest: Rest,
) -> Any:
    job, index = place
    message = orders_pb2.Task(job=job, index=index, phase=TaskPhase.PENDING)
    if end is not None:
        task, ended = end
        message.phase = _DECIDED.get(task.decision, TaskPhase.FAILED)
        message.attempt = task.attempt
        message.target, message.fulfilment = ended.target, ended.id
        _say(message, task)
        _say_decision(message, task)
    over = rest.over
    if ledger is not None and job in ledger.jobs and index < ledger.jobs[job].count:
        message.phase = _PHASES[ledger.jobs[job].state[index]]
        message.attempt = ledger.jobs[job].attempt(index)
        over = over or ledger.blocked(job)
    if message.phase in _NOT_STARTED and over:
        message.phase = rest.phase(job, index)
    if live is not None and message.phase == TaskPhase.PLACED:
        _show_live(message, live)
    if message.phase in _NOT_STARTED:
        message.ClearField("target")
        message.ClearField("fulfilment")
    return message


def _show_live(message: Any, live: LiveFulfilment) -> None:
    for field in ("exit_code", "reason", "message", "percent", "artefacts", *_DECISION_FIELDS):
        message.ClearField(field)
    message.target, message.fulfilment = live.fulfilment.target, live.fulfilment.id
    for task in live.observed.tasks if live.observed is not None else ():
        if (task.job, task.index) == (message.job, message.index):
            if task.phase == "Running" or (task.phase != "Starting" and len(live.fulfilment.tasks) > 1):
                # One that ended before its neighbours is over when they are.
                message.phase = TaskPhase.RUNNING
            _say(message, task)


def _say(message: Any, task: EndedTask | ObservedTask) -> None:
    if task.exit_code is not None:
        message.exit_code = task.exit_code
    if task.percent is not None:
        message.percent = task.percent
    if task.reason:
        message.reason = task.reason
    if task.message:
        message.message = texts.cut(task.message, texts.SHOWN_CHARACTERS)
    message.artefacts.extend(task.artefacts)


def _say_decision(message: Any, task: EndedTask) -> None:
    message.decision = task.decision
    if task.policy:
        message.policy = task.policy
    if task.why:
        message.why = task.why
    if task.not_before:
        message.not_before = task.not_before
    message.avoid.extend(task.avoid)
