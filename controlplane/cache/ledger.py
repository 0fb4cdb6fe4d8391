"""The ledger of one order: where each of its tasks stands, one byte a task.

Derived from the order, its fulfilments, what joblets observed and what ended, never counted a second way. A task
is fresh until its first placement, live while a fulfilment carries it, then over or waiting for its next attempt.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec.structs import replace

from controlplane.model import dependencies, schedule, times
from controlplane.model.dependencies import Dependencies
from controlplane.model.errors import Broken, Invalid
from controlplane.model.fulfilment import Ended, EndedTask, Fulfilment, Observed
from controlplane.model.order import Counts, Order, Resolved
from controlplane.model.quantity import sane

FRESH, LIVE, RETRY, SUCCEEDED, FAILED, CANCELLED, HELD, ORPHAN = range(8)
_AFTER = {"done": SUCCEEDED, "fail": FAILED, "cancel": CANCELLED, "retry": RETRY, "hold": HELD}
_OVER = frozenset({SUCCEEDED, FAILED, CANCELLED})
ENDS = frozenset({"Succeeded", "Failed", "Cancelled"})
_NONE = (0,) * 8
MAX_TASKS = 1_000_000
T = TypeVar("T")


_NOTHING: Mapping[int, Any] = MappingProxyType({})


def _with(before: Mapping[int, T], index: int, value: T) -> Mapping[int, T]:
    """The mapping with this entry: changed in place, unless it is the empty one that all share."""
    if not isinstance(before, dict):
        return {index: value}
    before[index] = value
    return before


def _without(before: Mapping[int, T], index: int) -> Mapping[int, T]:
    if isinstance(before, dict):
        before.pop(index, None)
    return before or _NOTHING


class JobLedger:
    """The tasks of one job of the order."""

    __slots__ = ("attempts", "count", "counts", "cursor", "moments", "not_before", "state")

    def __init__(self, count: int) -> None:
        self.count = count
        self.state = bytearray(count)
        self.counts = [count, 0, 0, 0, 0, 0, 0, 0]
        self.cursor = 0
        # Only what differs from "first attempt, may start now" is kept, and most jobs never need to.
        self.attempts: Mapping[int, int] = _NOTHING
        self.not_before: Mapping[int, str] = _NOTHING
        # The values of not_before, sorted.
        self.moments: list[str] | None = None

    def set(self, index: int, state: int) -> None:
        if not 0 <= index < self.count:
            return
        self.counts[self.state[index]] -= 1
        self.counts[state] += 1
        self.state[index] = state

    def attempt(self, index: int) -> int:
        """The last attempt that was placed; 0 before the first."""
        return self.attempts.get(index, 0 if self.state[index] == FRESH else 1)

    def saw(self, index: int, attempt: int) -> bool:
        """Notes the attempt; False when a later one is known already."""
        if not 0 <= index < self.count or attempt < self.attempt(index):
            return False
        if attempt > 1:
            self.attempts = _with(self.attempts, index, attempt)
        return True

    def hold_until(self, index: int, moment: str | None) -> None:
        """The task's next attempt may not begin before then; None: at any time."""
        before = self.not_before.get(index)
        if before is not None and self.moments is not None:
            del self.moments[bisect_left(self.moments, before)]
        if moment and times.is_stamp(moment):
            self.not_before = _with(self.not_before, index, moment)
            self.moments = self.moments if self.moments is not None else []
            insort(self.moments, moment)
        elif before is not None:
            self.not_before = _without(self.not_before, index)

    def carries(self, index: int, attempt: int) -> bool:
        """Whether this very attempt is the one that is placed."""
        return 0 <= index < self.count and self.state[index] == LIVE and self.attempt(index) == attempt

    def pending(self) -> int:
        return self.counts[FRESH] + self.counts[RETRY]

    def done(self) -> bool:
        return self.counts[SUCCEEDED] == self.count

    def take(self, most: int, now: str) -> list[tuple[int, int]]:
        """Up to `most` tasks that may be placed now as (index, next attempt): retries first, then by index."""
        taken: list[tuple[int, int]] = []
        if self.counts[RETRY]:
            for index in self._where(RETRY, 0):
                if len(taken) == most:
                    return taken
                if self.not_before.get(index, "") <= now:
                    taken.append((index, self.attempt(index) + 1))
        if self.counts[FRESH]:
            first = self.state.find(FRESH, self.cursor)
            self.cursor = first if first >= 0 else self.cursor
            for index in self._where(FRESH, self.cursor):
                if len(taken) == most:
                    break
                taken.append((index, 1))
        return taken

    def ready(self, now: str) -> int:
        """How many tasks may be placed now."""
        return self.pending() - (len(self.moments) - bisect_right(self.moments, now) if self.moments else 0)

    def next_time(self, now: str) -> str | None:
        """When the next of those that back off may be placed."""
        following = bisect_right(self.moments, now) if self.moments else 0
        return self.moments[following] if self.moments and following < len(self.moments) else None

    def _where(self, state: int, start: int) -> Iterator[int]:
        index = self.state.find(state, start)
        while index >= 0:
            yield index
            index = self.state.find(state, index + 1)


@dataclass(slots=True)
class LiveFulfilment:
    """What is placed, and the newest report about it."""

    fulfilment: Fulfilment
    revision: int
    observed: Observed | None = None
    observed_revision: int = 0
    running: int = 0
    percent: int = 0


@dataclass(slots=True)
class OrderLedger:
    order: Order
    revision: int
    resolved: Resolved
    jobs: dict[str, JobLedger]
    live: dict[str, LiveFulfilment] = field(default_factory=dict)
    phase: str = "Pending"
    status_revision: int = 0
    ended_any: bool = False
    # Live fulfilments whose joblet reported their end, and running totals over the live ones.
    over: Set[str] = frozenset()
    running: int = 0
    percents: int = 0
    # Of orders whose jobs wait for each other: who waits for whom, how far down its `after` each job has come, and
    # the jobs that can never run, since one that they wait for failed.
    depends: Dependencies | None = None
    passed: dict[str, int] | None = None
    stuck: Set[str] = frozenset()
    # The later run of the same template to which it gave way.
    replaced_by: str = ""

    @classmethod
    def open(cls, order: Order, revision: int, resolved: Resolved) -> OrderLedger:
        jobs = {job.job.name: JobLedger(job.count) for job in resolved.jobs}
        return cls(order, revision, resolved, jobs, depends=dependencies.of(resolved))

    def give_way(self, run: str) -> None:
        """To a later run: from then on it is as if its user had cancelled it. Empty: it does not."""
        if run:
            self.replaced_by = run
            self.order = replace(self.order, cancel=True)

    def place(self, fulfilment: Fulfilment, revision: int) -> None:
        known = self.live.get(fulfilment.id)
        if known is not None:
            known.fulfilment, known.revision = fulfilment, revision
            return
        self.live[fulfilment.id] = LiveFulfilment(fulfilment, revision)
        for task in fulfilment.tasks:
            job = self.jobs.get(task.job)
            if job is not None and job.saw(task.index, task.attempt) and job.state[task.index] not in _OVER:
                job.set(task.index, LIVE)
                job.hold_until(task.index, None)

    def unplace(self, fulfilment: str) -> None:
        """The fulfilment is gone. A task whose end is not told in the same breath is an orphan until it is."""
        known = self.live.pop(fulfilment, None)
        self._set_over(fulfilment, False)
        if known is not None:
            self.running -= known.running
            self.percents -= known.percent
        for task in known.fulfilment.tasks if known else ():
            job = self.jobs.get(task.job)
            if job is not None and job.carries(task.index, task.attempt):
                job.set(task.index, ORPHAN)

    def observe(self, fulfilment: str, observed: Observed | None, revision: int) -> None:
        """The newest report; None when there is none that can be read, at revision 0 when there is none at all."""
        live = self.live.get(fulfilment)
        if live is None:
            return
        running = percent = 0
        for task in observed.tasks if observed is not None else ():
            if task.phase == "Running":
                running += 1
                percent += task.percent or 0
        self.running += running - live.running
        self.percents += percent - live.percent
        live.observed, live.observed_revision, live.running, live.percent = observed, revision, running, percent
        self._set_over(fulfilment, observed is not None and observed.phase in ENDS)

    def _set_over(self, fulfilment: str, over: bool) -> None:
        """Changed in place, unless it is the empty set that all share."""
        if isinstance(self.over, set):
            (self.over.add if over else self.over.discard)(fulfilment)
        elif over:
            self.over = {fulfilment}

    def end(self, ended: Ended) -> None:
        self.ended_any = True
        for task in ended.tasks:
            self._end_task(task)

    def _end_task(self, task: EndedTask) -> None:
        job = self.jobs.get(task.job)
        if job is None or not job.saw(task.index, task.attempt) or job.state[task.index] in _OVER:
            return
        state = _AFTER.get(task.decision, FAILED)
        job.set(task.index, state)
        job.hold_until(task.index, task.not_before if task.decision == "retry" else None)
        if self.depends is not None and state in (FAILED, CANCELLED):
            self.stuck = self.stuck | set(self.depends.downstream(task.job, self.stuck))

    def orphans(self) -> bool:
        for job in self.jobs.values():  # noqa: SIM110 - asked for every change of every order
            if job.counts[ORPHAN]:
                return True
        return False

    def ready(self, job_name: str, now: str) -> int:
        """How many tasks of the job may be placed now, as far as times and the jobs that it waits for go."""
        if (self.order.not_before or "") > now or (self.depends is not None and self._waits(job_name, self.depends)):
            return 0
        return self.jobs[job_name].ready(now)

    def _waits(self, job_name: str, depends: Dependencies) -> bool:
        """What is done stays done, so that no job is looked at twice once it has been passed."""
        after = depends.after.get(job_name, ())
        if self.passed is None:
            self.passed = {}
        passed = self.passed.get(job_name, 0)
        while passed < len(after) and self.jobs[after[passed]].done():
            passed += 1
        self.passed[job_name] = passed
        return passed < len(after)

    def waits_for(self, job_name: str) -> tuple[str, ...]:
        """The jobs that must succeed before this one may begin, those that did not yet."""
        after = self.depends.after.get(job_name, ()) if self.depends is not None else ()
        return tuple(name for name in after if not self.jobs[name].done())

    def blocked(self, job_name: str) -> bool:
        """Whether it can never run: a job that it waits for, over others too, failed or was cancelled."""
        return job_name in self.stuck

    def next_time(self, now: str) -> str | None:
        """The earliest moment to come at which more becomes ready by itself."""
        if not self.wants_room():
            return None
        if (self.order.not_before or "") > now:
            return self.order.not_before
        soonest: str | None = None
        for job in self.jobs.values():
            moment = job.next_time(now) if job.moments else None
            if moment is not None and (soonest is None or moment < soonest):
                soonest = moment
        return soonest

    def pending_of(self, job_name: str) -> int:
        """How many of its tasks wait to be placed; none that never can."""
        return 0 if job_name in self.stuck else self.jobs[job_name].pending()

    def pending(self) -> int:
        waiting = 0
        for job in self.jobs.values():
            waiting += job.counts[FRESH] + job.counts[RETRY]
        for name in self.stuck:
            waiting -= self.jobs[name].pending()
        return waiting

    def wants_room(self) -> bool:
        """Whether the scheduler has anything to do for it, times apart."""
        return not self.order.paused and not self.order.cancel and self.pending() > 0

    def counts(self) -> Counts:
        total = [sum(counts) for counts in zip(_NONE, *(job.counts for job in self.jobs.values()), strict=True)]
        running = self.running
        pending, cancelled = total[FRESH] + total[RETRY] + total[ORPHAN], total[CANCELLED]
        if self.order.cancel:
            pending, cancelled = total[ORPHAN], cancelled + total[FRESH] + total[RETRY] + total[HELD]
        elif self.stuck:
            never = sum(self.jobs[name].pending() for name in self.stuck)
            pending, cancelled = pending - never, cancelled + never
        return Counts(
            pending=pending,
            placed=total[LIVE] - running,
            running=running,
            succeeded=total[SUCCEEDED],
            failed=total[FAILED],
            cancelled=cancelled,
            held=0 if self.order.cancel else total[HELD],
        )

    def percent(self, *, ending: int = 0) -> int:
        """How much is done: ended tasks count whole, running ones with what they report.

        `ending`: as it will be once the last tasks, so many, have ended.
        """
        total = max(self.order.tasks_total, 1)
        ended = ending
        for job in self.jobs.values():
            ended += job.counts[SUCCEEDED] + job.counts[FAILED] + job.counts[CANCELLED]
        return min(100, (100 * ended + (0 if ending else self.percents)) // total)


def check(resolved: Resolved) -> None:
    """Broken for what no admission lets in."""
    names = {job.job.name for job in resolved.jobs}
    if len(names) != len(resolved.jobs):
        raise Broken("two jobs of the order have one name")
    if any(job.count < 0 for job in resolved.jobs) or resolved.task_count() > MAX_TASKS:
        raise Broken(f"an order has 0 to {MAX_TASKS} tasks")
    if not all(sane(job.job.requests or {}) for job in resolved.jobs):
        raise Broken("a job of the order requests what is no amount")
    after = {job.job.name: job.after for job in resolved.jobs if job.after}
    if not all(names.issuperset(before) for before in after.values()) or dependencies.waiting_for_itself(after):
        raise Broken("a job of the order waits for one that is not there, or for itself")


def check_order(order: Order) -> None:
    """Broken for what no admission lets in."""
    if order.not_before and not times.is_stamp(order.not_before):
        raise Broken(f"{order.not_before!r} is no time as the system writes it")
    if order.schedule is not None:
        try:
            schedule.check(order.schedule)
            times.parse(order.created, "created")
        except Invalid as error:
            raise Broken(f"the order's schedule cannot be read: {error}") from None
