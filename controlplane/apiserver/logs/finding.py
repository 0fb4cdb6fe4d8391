"""Which task a reader means, and which attempts there are of it. Pure: nothing here waits or talks to anybody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controlplane.cache.ledger import ENDS, LiveFulfilment, OrderLedger
from controlplane.cache.snapshot import Entry
from controlplane.model import identity, texts
from controlplane.model.errors import Broken, Invalid, NotFound
from controlplane.model.fulfilment import Ended, EndedTask, ObservedTask, TaskRef
from controlplane.model.order import Order, Resolved
from controlplane.wire.v1 import logs_pb2

MOST_LINES = 1_000_000_000
# Ends of attempts that never ran, so that their targets keep no output.
_NO_START = frozenset({"StartError", "ImageError"})


@dataclass(frozen=True, slots=True)
class Place:
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
class Attempt:
    """`begun`: its joblet reported that it runs, or how it ended. `over`: nothing of it is desired any more.

    `trouble` is what its target says of one that does not start, or could not be started: it has no output.
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
    """Invalid when it does not say clearly what is asked for."""
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


def place_of(request: logs_pb2.LogsRequest, order: Order, resolved: Resolved) -> Place:
    """The one task that is asked for; job and index may be left out where there is one only."""
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
    return Place(name, request.index, before + request.index)


def attempts_of(place: Place, ledger: OrderLedger | None, ended: Iterable[Entry]) -> list[Attempt]:
    """All that are on record, oldest first. Poison is stepped over."""
    found: dict[int, Attempt] = {}
    # Most ends of a large order are of other tasks: those are not even read.
    mark = f'"index":{place.index},'.encode()
    for entry in ended:
        if mark not in entry.stored.value:
            continue
        try:
            end = entry.read(Ended)
        except Broken:
            continue
        for task in end.tasks:
            if (task.job, task.index) == place.task:
                trouble = _trouble(task) if task.reason in _NO_START else ""
                ended_attempt = Attempt(task.attempt, end.target, end.id, begun=True, over=True, trouble=trouble)
                found[task.attempt] = ended_attempt
    for live in ledger.live.values() if ledger is not None else ():
        seen = {(task.job, task.index): task for task in (live.observed.tasks if live.observed else ())}
        for ref in live.fulfilment.tasks:
            if (ref.job, ref.index) == place.task:
                found[ref.attempt] = _placed(ref, live, seen.get(place.task))
    return [found[number] for number in sorted(found)]


def _placed(ref: TaskRef, live: LiveFulfilment, seen: ObservedTask | None) -> Attempt:
    phase = seen.phase if seen is not None else "Starting"
    begun = phase == "Running" or phase in ENDS
    trouble = _trouble(seen) if seen is not None and (not begun or seen.reason in _NO_START) else ""
    return Attempt(ref.attempt, live.fulfilment.target, live.fulfilment.id, begun=begun, over=False, trouble=trouble)


def _trouble(task: EndedTask | ObservedTask) -> str:
    return ": ".join(filter(None, (task.reason, texts.one_line(task.message))))


def choose(attempts: Sequence[Attempt], request: logs_pb2.LogsRequest, after: int) -> Attempt | None:
    """The one to read next, `after` the one that was read last (0: none); None when there is none yet."""
    if after:
        return next((attempt for attempt in attempts if attempt.number > after), None)
    wanted = request.attempt or request.resume.attempt
    if wanted:
        for attempt in attempts:
            if attempt.number == wanted:
                return attempt
        known = ", ".join(str(attempt.number) for attempt in attempts) or "none"
        raise NotFound(f"attempt: there is no attempt {wanted} of the task on record, but {known}", field="attempt")
    if request.previous:
        if len(attempts) < 2:
            raise NotFound("previous: the task has no attempt before its newest one", field="previous")
        return attempts[-2]
    return attempts[-1] if attempts else None
