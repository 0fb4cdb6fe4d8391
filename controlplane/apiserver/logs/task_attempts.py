"""The task of a log request, and the attempts on record of the task. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controlplane.cache import peek
from controlplane.cache.ledger import LiveFulfilment, OrderLedger
from controlplane.cache.snapshot import Entry
from controlplane.model import identity, texts
from controlplane.model.errors import Broken, Invalid, NotFound
from controlplane.model.fulfilment import Ended, EndedTask, ObservedTask, TaskRef
from controlplane.model.order import Order, Resolved
from controlplane.model.task import ENDED, AttemptPhase
from controlplane.wire.v1 import logs_pb2

MOST_LINES = 1_000_000_000
# Ends of attempts that never ran, so that their targets keep no output.
_NO_START = frozenset({"StartError", "ImageError"})


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """A task; `position` counts through all tasks of its order."""

    job: str
    index: int
    position: int

    @property
    def task(self) -> tuple[str, int]:
        return self.job, self.index

    def __str__(self) -> str:
        return f"{self.job}/{self.index}"


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """`begun`: the joblet reported running, or an end. `over`: no fulfilment of the attempt is desired any more.

    `trouble` is the target's text about an attempt which does not start, or could not be started, and has no output.
    """

    number: int
    target: str
    fulfilment: str
    begun: bool
    over: bool
    trouble: str = ""

    @property
    def failed_to_start(self) -> bool:
        return self.begun and bool(self.trouble)


def check(request: logs_pb2.LogsRequest) -> None:
    """Invalid for an ambiguous or contradictory request."""
    identity.check(request.id)
    if request.stream not in ("", "stdout", "stderr"):
        raise Invalid("stream", f"must be stdout or stderr, not {request.stream!r}")
    if request.attempt < 0:
        raise Invalid("attempt", f"must not be negative, but is {request.attempt}")
    if request.attempt and request.previous:
        raise Invalid("previous", "must not be given together with attempt")
    if not 0 <= request.tail_lines <= MOST_LINES:
        raise Invalid("tail_lines", f"must be between 0 and {MOST_LINES}, not {request.tail_lines}")
    start = request.resume.start
    if request.resume.attempt < 0 or start.stdout < 0 or start.stderr < 0:
        raise Invalid("resume", "must not be negative")
    if request.resume.attempt and request.attempt not in (0, request.resume.attempt):
        raise Invalid("resume", "must be of the attempt that is asked for")


def place_of(request: logs_pb2.LogsRequest, order: Order, resolved: Resolved) -> TaskPlace:
    """The task of the request; job and index may be left out where only one task is meant."""
    if order.schedule is not None:
        raise NotFound(f"id: order {order.id} is recurring: ask for one of its runs", field="id")
    names = [job.job.name for job in resolved.jobs]
    if not request.job and len(names) != 1:
        raise Invalid("job", f"must be given: the order has {len(names)} jobs")
    name = request.job or names[0]
    if name not in names:
        raise NotFound(f"job: order {order.id} has no job {name}", field="job")
    count = resolved.jobs[names.index(name)].count
    if not request.HasField("index") and count != 1:
        raise Invalid("index", f"must be given: job {name} has {count} tasks")
    if not 0 <= request.index < count:
        raise NotFound(f"index: job {name} has {count} tasks, and no {request.index}", field="index")
    before = sum(job.count for job in resolved.jobs[: names.index(name)])
    return TaskPlace(name, request.index, before + request.index)


def attempts_of(place: TaskPlace, ledger: OrderLedger | None, ended: Iterable[Entry[Ended]]) -> list[TaskAttempt]:
    """All attempts on record, oldest first. Poison is stepped over."""
    attempts: dict[int, TaskAttempt] = {}
    # Most ends of a large order are of other tasks, and are not decoded.
    for entry in peek.with_index(ended, place.index):
        try:
            end = entry.read()
        except Broken:
            continue
        for task in end.tasks:
            if (task.job, task.index) == place.task:
                trouble = _trouble(task) if task.reason in _NO_START else ""
                ended_attempt = TaskAttempt(task.attempt, end.target, end.id, begun=True, over=True, trouble=trouble)
                attempts[task.attempt] = ended_attempt
    for live in ledger.live.values() if ledger is not None else ():
        seen = {(task.job, task.index): task for task in (live.observed.tasks if live.observed else ())}
        for ref in live.fulfilment.tasks:
            if (ref.job, ref.index) == place.task:
                attempts[ref.attempt] = _placed(ref, live, seen.get(place.task))
    return [attempts[number] for number in sorted(attempts)]


def _placed(ref: TaskRef, live: LiveFulfilment, seen: ObservedTask | None) -> TaskAttempt:
    begun = seen is not None and (seen.phase == AttemptPhase.RUNNING or seen.phase in ENDED)
    trouble = _trouble(seen) if seen is not None and (not begun or seen.reason in _NO_START) else ""
    return TaskAttempt(
        ref.attempt, live.fulfilment.target, live.fulfilment.id, begun=begun, over=False, trouble=trouble
    )


def _trouble(task: EndedTask | ObservedTask) -> str:
    return ": ".join(filter(None, (task.reason, texts.one_line(task.message))))


def choose(attempts: Sequence[TaskAttempt], request: logs_pb2.LogsRequest, after: int) -> TaskAttempt | None:
    """The attempt to read next, `after` the last attempt read (0: none); None while there is none."""
    if after:
        return next((attempt for attempt in attempts if attempt.number > after), None)
    wanted = request.attempt or request.resume.attempt
    if wanted:
        for attempt in attempts:
            if attempt.number == wanted:
                return attempt
        numbers = ", ".join(str(attempt.number) for attempt in attempts) or "none"
        raise NotFound(f"attempt: there is no attempt {wanted} of the task on record, but {numbers}", field="attempt")
    if request.previous:
        if len(attempts) < 2:
            raise NotFound("previous: the task has no attempt before its newest one", field="previous")
        return attempts[-2]
    return attempts[-1] if attempts else None
