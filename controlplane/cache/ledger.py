"""The ledger of one order: where each of its tasks stands, one byte a task at most.

Derived from the order, its fulfilments, what joblets observed and what ended, never counted a second way. A task
is fresh until its first placement, live while a fulfilment carries it, then over or waiting for its next attempt.
What users wish of single tasks, and the deadline, may end it while it waits. Of tasks that never failed nothing is kept
but the byte.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec
from msgspec.structs import replace

from controlplane.cache import wishes
from controlplane.cache.detour import Detour
from controlplane.cache.job_ledger import (
    CALLED_OFF,
    CANCELLED,
    EXPIRED,
    FAILED,
    FRESH,
    HELD,
    LIVE,
    ORPHAN,
    OVER,
    RETRY,
    SUCCEEDED,
    JobLedger,
)
from controlplane.model import dependencies
from controlplane.model.dependencies import Dependencies
from controlplane.model.errors import Broken
from controlplane.model.fulfilment import Ended, EndedTask, Fulfilment, Observed
from controlplane.model.order import Counts, Order, Resolved
from controlplane.model.quantity import sane

_AFTER = {
    "done": SUCCEEDED,
    "ignore": SUCCEEDED,
    "fail": FAILED,
    "fail_order": FAILED,
    "cancel": CANCELLED,
    "retry": RETRY,
    "move": RETRY,
    "hold": HELD,
}
_WITHOUT_SUCCESS = frozenset({FAILED, CANCELLED, CALLED_OFF, EXPIRED})
ENDS = frozenset({"Succeeded", "Failed", "Cancelled"})
_NONE = (0,) * 10
MAX_TASKS = 1_000_000


class LiveFulfilment(msgspec.Struct, eq=False, gc=False):
    """What is placed, and the newest report about it."""

    fulfilment: Fulfilment
    revision: int
    observed: Observed | None = None
    observed_revision: int = 0
    running: int = 0
    percent: int = 0


class OrderLedger(msgspec.Struct, eq=False, gc=False):
    """There is one for every order that is not over: not for the garbage collector."""

    order: Order
    revision: int
    resolved: Resolved
    jobs: dict[str, JobLedger]
    live: dict[str, LiveFulfilment] = {}
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
    # One of its tasks failed the whole order. Jobs whose waiting tasks failed by the deadline.
    doomed: bool = False
    expired: frozenset[str] = frozenset()
    # Whether its user changed it since it was submitted.
    changed: bool = False
    # The revision of the order that its status takes account of.
    answered: int = 0
    # The later run of the same template to which it gave way.
    replaced_by: str = ""
    # How many of its tasks the replica's sum of waiting tasks holds.
    counted: int = 0

    @classmethod
    def open(cls, order: Order, revision: int, resolved: Resolved) -> OrderLedger:
        jobs = {job.job.name: JobLedger(job.count) for job in resolved.jobs}
        ledger = cls(order, revision, resolved, jobs, depends=dependencies.of(resolved))
        ledger.heed()
        return ledger

    @property
    def ending(self) -> bool:
        """Nothing more of it is to run."""
        return self.order.cancel or self.doomed

    def change(self, order: Order, revision: int) -> None:
        self.order, self.revision, self.changed = order, revision, True
        self.heed()

    def heed(self) -> None:
        """What the order's user wishes of single tasks."""
        order = self.order
        if order.cancel_tasks or order.moves or order.releases:
            wishes.heed(order, self.jobs)
            self._find_stuck()

    def expire(self, jobs: Sequence[str]) -> None:
        """Waiting tasks of these jobs failed by the deadline."""
        if not jobs or self.expired.issuperset(jobs):
            return
        self.expired = frozenset((*self.expired, *jobs))
        for name in jobs:
            if name in self.jobs:
                self.jobs[name].end_waiting(EXPIRED)
        self._find_stuck()

    def _find_stuck(self) -> None:
        """Jobs that wait for one of which a task is over without success can never run."""
        if self.depends is None:
            return
        for name, job in self.jobs.items():
            if job.counts[CALLED_OFF] or job.counts[EXPIRED]:
                self.stuck = self.stuck | set(self.depends.downstream(name, self.stuck))

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
            if job is not None:
                job.place(task.index, task.attempt)

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
            elif task.phase in ENDS and observed is not None and observed.phase not in ENDS:
                # It ended before its neighbours, with whom it is released.
                running += 1
                percent += 100
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

    def end(self, ended: Ended, revision: int = 0) -> None:
        """`revision`: that of the end's record."""
        self.ended_any = True
        for task in ended.tasks:
            self._end_task(task, revision)

    def _end_task(self, task: EndedTask, revision: int) -> None:
        job = self.jobs.get(task.job)
        if job is None or not 0 <= task.index < job.count:
            return
        if task.decision == "retry" and job.state[task.index] not in OVER:
            job.note_retry(task)
        elif task.decision == "fail_order":
            self.doomed = True
        if not job.saw(task.index, task.attempt) or job.state[task.index] in OVER:
            return
        state = _AFTER.get(task.decision, FAILED)
        job.set(task.index, state)
        job.hold_until(task.index, task.not_before if task.decision == "retry" else None)
        if state in OVER:
            job.forget(task.index)
        else:
            self._let_wait(job, task, revision)
        if self.depends is not None and job.state[task.index] in _WITHOUT_SUCCESS:
            self.stuck = self.stuck | set(self.depends.downstream(task.job, self.stuck))

    def _let_wait(self, job: JobLedger, task: EndedTask, revision: int) -> None:
        """It waits for its next attempt, or for a person, unless a wish or the deadline says otherwise."""
        job.send(task.index, Detour(task.avoid, ""))
        if job.state[task.index] == HELD:
            job.note_hold(task.index, revision)
        if self.order.cancel_tasks or self.order.moves or self.order.releases:
            wishes.heed_one(self.order, task.job, job, task.index)
        if task.job in self.expired:
            job.end_waiting(EXPIRED, task.index)

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

    def waiting(self) -> int:
        """Tasks that wait for a placement which is still wanted: those of paused orders too, held ones not."""
        return 0 if self.ending else self.pending()

    def wants_room(self) -> bool:
        """Whether the scheduler has anything to do for it, times apart."""
        return not self.order.paused and not self.ending and self.pending() > 0

    def counts(self) -> Counts:
        jobs = self.jobs.values()
        if len(jobs) == 1:
            (total,) = [job.counts for job in jobs]
        else:
            total = [sum(counts) for counts in zip(_NONE, *(job.counts for job in jobs), strict=True)]
        running = self.running
        pending, cancelled = total[FRESH] + total[RETRY] + total[ORPHAN], total[CANCELLED] + total[CALLED_OFF]
        if self.ending:
            pending, cancelled = total[ORPHAN], cancelled + total[FRESH] + total[RETRY] + total[HELD]
        elif self.stuck:
            never = sum(self.jobs[name].pending() for name in self.stuck)
            pending, cancelled = pending - never, cancelled + never
        return Counts(
            pending=pending,
            placed=total[LIVE] - running,
            running=running,
            succeeded=total[SUCCEEDED],
            failed=total[FAILED] + total[EXPIRED],
            cancelled=cancelled,
            held=0 if self.ending else total[HELD],
        )

    def percent(self, *, ending: int = 0) -> int:
        """How much is done: ended tasks count whole, running ones with what they report.

        `ending`: as it will be once the last tasks, so many, have ended.
        """
        total = max(self.order.tasks_total, 1)
        ended = ending
        for job in self.jobs.values():
            counts = job.counts
            ended += counts[SUCCEEDED] + counts[FAILED] + counts[CANCELLED] + counts[CALLED_OFF] + counts[EXPIRED]
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
    broken = order.misfit()
    if broken is not None:
        raise Broken(": ".join(broken))
