"""The tasks of an order, page by page: from its ledger, its live fulfilments, and its ended attempts.

A task's position counts through the jobs of the order, so a page is found without a list of all tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from controlplane.aio.thread_team import QUESTIONS
from controlplane.apiserver.fresh_reads import order_status
from controlplane.cache import wishes
from controlplane.cache.ledger import LiveFulfilment, OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.engine.reasons import Part
from controlplane.model import texts
from controlplane.model.dependencies import DEPENDENCY_FAILED
from controlplane.model.errors import Broken
from controlplane.model.failure import DEADLINE_EXCEEDED, ORDER_FAILED
from controlplane.model.fulfilment import Ended, EndedTask, ObservedTask
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import Order, Resolved
from controlplane.model.task import NOT_STARTED, PHASE_OF, AttemptPhase, TaskEvent, TaskPhase, phase_after
from controlplane.store import keys

# Reading more ends on the loop would hold up other requests.
_MANY = 1000

Place = tuple[str, int]


class ShownTask(msgspec.Struct, kw_only=True):
    """`decision` to `avoid` come from the end of the task's last attempt."""

    job: str
    index: int
    phase: str = TaskPhase.PENDING
    attempt: int = 0
    target: str | None = None
    fulfilment: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    percent: int | None = None
    artefacts: tuple[str, ...] = ()
    decision: str | None = None
    policy: str | None = None
    why: str | None = None
    not_before: str | None = None
    avoid: tuple[str, ...] = ()
    message: str | None = None

    def forget_decision(self) -> None:
        self.decision = self.policy = self.why = self.not_before = None
        self.avoid = ()


@dataclass(frozen=True, slots=True)
class TaskPage:
    tasks: list[ShownTask]
    more: bool


async def page(
    ledgers: Ledgers, snapshot: Snapshot, order: Order, *, start: int, limit: int, waits: Mapping[Part, str]
) -> TaskPage:
    """`waits` tells why pending tasks wait, by job and placement hint.

    A recurring order has no tasks: tasks belong to its runs.
    """
    if order.schedule is not None:
        return TaskPage([], False)
    resolved = ledgers.resolved(order)
    places = _places(resolved, start, limit)
    ledger = ledgers.orders.get(order.id)
    live = _live(ledger, places) if ledger is not None else {}
    entries = list(snapshot.all(keys.ENDED, order.id))
    ended = _ends(entries, places) if len(entries) < _MANY else await QUESTIONS.run(_ends, entries, places)
    rest = _rest_of(snapshot, order, ended.doomed)
    tasks = [_task(place, ledger, live.get(place), ended.ends.get(place), rest) for place in places]
    for task in tasks:
        if task.phase == TaskPhase.PENDING and ledger is not None:
            part = (task.job, ledger.jobs[task.job].hint(task.index))
            task.reason = waits.get(part, task.reason or "")
        if task.phase in (TaskPhase.CANCELLED, TaskPhase.FAILED) and not _by_its_attempt(task):
            task.reason = _why_over(task, rest)
            task.forget_decision()
    return TaskPage(tasks, start + len(places) < order.tasks_total)


def _by_its_attempt(task: ShownTask) -> bool:
    """Whether the decision at the end of the last attempt gave the task its present phase."""
    return task.decision is not None and phase_after(task.decision) == task.phase


def _why_over(task: ShownTask, rest: Rest) -> str:
    """The reason of a waiting task which is over without another attempt."""
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
class EndedTasks:
    """The end of each task's last attempt; whether any attempt failed the whole order."""

    ends: dict[Place, tuple[EndedTask, Ended]]
    doomed: bool


@dataclass(frozen=True, slots=True)
class Rest:
    """The phase of waiting tasks by their order: tasks of a final order never get another attempt."""

    order: Order
    over: bool
    expired: frozenset[str]
    doomed: bool

    def phase(self, job: str, index: int) -> TaskPhase:
        late = job in self.expired and not wishes.cancelled(self.order, job, index)
        return TaskPhase.FAILED if late else TaskPhase.CANCELLED


def _ends(entries: Iterable[Entry[Ended]], places: Mapping[Place, None]) -> EndedTasks:
    """Poison is stepped over."""
    ends: dict[Place, tuple[EndedTask, Ended]] = {}
    doomed = False
    for entry in entries:
        try:
            ended = entry.read()
        except Broken:
            continue
        for task in ended.tasks:
            doomed = doomed or task.decision == TaskEvent.FAIL_ORDER
            place = (task.job, task.index)
            if place in places and (place not in ends or ends[place][0].attempt < task.attempt):
                ends[place] = (task, ended)
    return EndedTasks(ends, doomed)


def _rest_of(snapshot: Snapshot, order: Order, doomed: bool) -> Rest:
    status = order_status(snapshot, order.id)
    final = status is not None and status.phase in FINAL_ORDER
    expired = frozenset(status.expired) if status is not None else frozenset()
    return Rest(order, final or order.cancel or doomed, expired, doomed)


def _task(
    place: Place,
    ledger: OrderLedger | None,
    live: LiveFulfilment | None,
    end: tuple[EndedTask, Ended] | None,
    rest: Rest,
) -> ShownTask:
    job, index = place
    shown = ShownTask(job=job, index=index)
    if end is not None:
        task, ended = end
        shown.phase = phase_after(task.decision)
        shown.attempt = task.attempt
        shown.target, shown.fulfilment = ended.target, ended.id
        _say(shown, task)
        _say_decision(shown, task)
    over = rest.over
    if ledger is not None and job in ledger.jobs and index < ledger.jobs[job].count:
        shown.phase = PHASE_OF[ledger.jobs[job].state[index]]
        shown.attempt = ledger.jobs[job].attempt(index)
        over = over or ledger.blocked(job)
    if shown.phase in NOT_STARTED and over:
        shown.phase = rest.phase(job, index)
    if live is not None and shown.phase == TaskPhase.PLACED:
        _show_live(shown, live)
    if shown.phase in NOT_STARTED:
        shown.target = shown.fulfilment = None
    return shown


def _show_live(shown: ShownTask, live: LiveFulfilment) -> None:
    shown.exit_code = shown.percent = shown.reason = shown.message = None
    shown.artefacts = ()
    shown.forget_decision()
    shown.target, shown.fulfilment = live.fulfilment.target, live.fulfilment.id
    for task in live.observed.tasks if live.observed is not None else ():
        if (task.job, task.index) == (shown.job, shown.index):
            if task.phase == AttemptPhase.RUNNING or (
                task.phase != AttemptPhase.STARTING and len(live.fulfilment.tasks) > 1
            ):
                # A task which ended before the others of its fulfilment is over when they are.
                shown.phase = TaskPhase.RUNNING
            _say(shown, task)


def _say(shown: ShownTask, task: EndedTask | ObservedTask) -> None:
    shown.exit_code = task.exit_code if task.exit_code is not None else shown.exit_code
    shown.percent = task.percent if task.percent is not None else shown.percent
    shown.reason = task.reason or shown.reason
    shown.message = texts.cut(task.message, texts.SHOWN_CHARACTERS) if task.message else shown.message
    shown.artefacts += task.artefacts


def _say_decision(shown: ShownTask, task: EndedTask) -> None:
    shown.decision = task.decision
    shown.policy, shown.why = task.policy or None, task.why or None
    shown.not_before = task.not_before or None
    shown.avoid = task.avoid
