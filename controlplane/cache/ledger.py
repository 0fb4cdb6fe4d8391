"""The ledger of an order: the state of each task, a byte a task at most.

Derived from the order, its fulfilments, the reports of joblets and the ends on record, never counted a second way. A
task changes by the table in `model/task` alone. Of tasks that never failed only the byte is kept.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec
from msgspec.structs import replace

from controlplane.cache import wishes
from controlplane.cache.job_ledger import JobLedger
from controlplane.cache.placement_hint import PlacementHint
from controlplane.model import dependencies
from controlplane.model.dependencies import Dependencies
from controlplane.model.errors import Broken
from controlplane.model.fulfilment import Ended, EndedTask, Fulfilment, Observed
from controlplane.model.order import Counts, Order, Resolved
from controlplane.model.quantity import sane
from controlplane.model.task import ENDED, OVER, AttemptPhase, TaskEvent, TaskState, decision_of

_NEW, _WAITING_RETRY, _ORPHANED = TaskState.NEW, TaskState.WAITING_RETRY, TaskState.ORPHANED
_RETRY, _FAIL_ORDER, _RUNNING = TaskEvent.RETRY, TaskEvent.FAIL_ORDER, AttemptPhase.RUNNING
_WITHOUT_SUCCESS = frozenset({TaskState.FAILED, TaskState.CANCELLED, TaskState.CALLED_OFF, TaskState.EXPIRED})
MAX_TASKS = 1_000_000


class LiveFulfilment(msgspec.Struct, eq=False, gc=False):
    """A placed fulfilment, and the newest report about it."""

    fulfilment: Fulfilment
    revision: int
    observed: Observed | None = None
    observed_revision: int = 0
    running: int = 0
    percent: int = 0


class OrderLedger(msgspec.Struct, eq=False, gc=False):
    """A ledger exists for every order that is not over: kept from the garbage collector."""

    order: Order
    revision: int
    resolved: Resolved
    jobs: dict[str, JobLedger]
    live: dict[str, LiveFulfilment] = {}
    phase: str = "Pending"
    status_revision: int = 0
    ended_any: bool = False
    # Live fulfilments whose end was reported, and running totals over all live fulfilments.
    over: Set[str] = frozenset()
    running: int = 0
    percents: int = 0
    # Of orders with dependencies: the dependencies, the number of met dependencies of each job, and the jobs that can
    # never run because a dependency failed.
    depends: Dependencies | None = None
    passed: dict[str, int] | None = None
    stuck: Set[str] = frozenset()
    # Whether a task failed the whole order. Jobs whose waiting tasks failed by the deadline.
    doomed: bool = False
    expired: frozenset[str] = frozenset()
    # Whether the user changed the order after submitting it.
    changed: bool = False
    # The revision of the order that the status takes into account.
    answered: int = 0
    # The later run of the same template that replaces this run.
    replaced_by: str = ""
    # The number of tasks that count in the replica's sum of waiting tasks.
    counted: int = 0

    @classmethod
    def open(cls, order: Order, revision: int, resolved: Resolved) -> OrderLedger:
        jobs = {job.job.name: JobLedger(job.count) for job in resolved.jobs}
        ledger = cls(order, revision, resolved, jobs, depends=dependencies.of(resolved))
        ledger.heed()
        return ledger

    @property
    def ending(self) -> bool:
        """No task of the order is to run any more."""
        return self.order.cancel or self.doomed

    def change(self, order: Order, revision: int) -> None:
        self.order, self.revision, self.changed = order, revision, True
        self.heed()

    def heed(self) -> None:
        """Applies the user's wishes about single tasks."""
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
                self.jobs[name].end_waiting(TaskEvent.EXPIRE)
        self._find_stuck()

    def _find_stuck(self) -> None:
        """A job can never run when a job it waits for has a task that is over without success."""
        if self.depends is None:
            return
        for name, job in self.jobs.items():
            if job.counts[TaskState.CALLED_OFF] or job.counts[TaskState.EXPIRED]:
                self.stuck = self.stuck | set(self.depends.downstream(name, self.stuck))

    def give_way(self, run: str) -> None:
        """Counts as a cancel by the user. An empty `run` changes nothing."""
        if run:
            self.replaced_by = run
            self.order = replace(self.order, cancel=True)

    def place(self, fulfilment: Fulfilment, revision: int) -> None:
        live = self.live.get(fulfilment.id)
        if live is not None:
            live.fulfilment, live.revision = fulfilment, revision
            return
        self.live[fulfilment.id] = LiveFulfilment(fulfilment, revision)
        for task in fulfilment.tasks:
            job = self.jobs.get(task.job)
            if job is not None:
                job.place(task.index, task.attempt)

    def unplace(self, fulfilment: str) -> None:
        """The fulfilment is gone. A task without a record of its end is an orphan until the record arrives."""
        live = self.live.pop(fulfilment, None)
        self._set_over(fulfilment, False)
        if live is not None:
            self.running -= live.running
            self.percents -= live.percent
        for task in live.fulfilment.tasks if live else ():
            job = self.jobs.get(task.job)
            if job is not None and job.carries(task.index, task.attempt):
                job.move(task.index, TaskEvent.VANISH)

    def observe(self, fulfilment: str, observed: Observed | None, revision: int) -> None:
        """The newest report; None for a report that is unreadable, or absent (revision 0)."""
        live = self.live.get(fulfilment)
        if live is None:
            return
        running = percent = 0
        for task in observed.tasks if observed is not None else ():
            if task.phase == _RUNNING:
                running += 1
                percent += task.percent or 0
            elif task.phase in ENDED and observed is not None and observed.phase not in ENDED:
                # The task ended before its neighbours, and is released together with them.
                running += 1
                percent += 100
        self.running += running - live.running
        self.percents += percent - live.percent
        live.observed, live.observed_revision, live.running, live.percent = observed, revision, running, percent
        self._set_over(fulfilment, observed is not None and observed.phase in ENDED)

    def _set_over(self, fulfilment: str, over: bool) -> None:
        """Changed in place, unless it is the shared empty set."""
        if isinstance(self.over, set):
            (self.over.add if over else self.over.discard)(fulfilment)
        elif over:
            self.over = {fulfilment}

    def end(self, ended: Ended, revision: int = 0) -> None:
        """`revision` is the revision of the record."""
        self.ended_any = True
        for task in ended.tasks:
            self._end_task(task, revision)

    def _end_task(self, task: EndedTask, revision: int) -> None:
        job = self.jobs.get(task.job)
        if job is None or not 0 <= task.index < job.count:
            return
        decision = decision_of(task.decision)
        if decision is _RETRY and job.state[task.index] not in OVER:
            job.note_retry(task)
        elif decision is _FAIL_ORDER:
            self.doomed = True
        after = job.move(task.index, decision) if job.saw(task.index, task.attempt) else 0
        if not after:
            return
        if decision is _RETRY or job.not_before:
            job.hold_until(task.index, task.not_before if decision is _RETRY else None)
        if after in OVER:
            job.forget(task.index)
        else:
            self._let_wait(job, task, revision)
        if self.depends is not None and job.state[task.index] in _WITHOUT_SUCCESS:
            self.stuck = self.stuck | set(self.depends.downstream(task.job, self.stuck))

    def _let_wait(self, job: JobLedger, task: EndedTask, revision: int) -> None:
        """The task waits for its next attempt or for a person, unless a wish or the deadline ends it."""
        job.set_hint(task.index, PlacementHint(task.avoid, ""))
        if job.state[task.index] == TaskState.HELD:
            job.note_hold(task.index, revision)
        if self.order.cancel_tasks or self.order.moves or self.order.releases:
            wishes.heed_one(self.order, task.job, job, task.index)
        if task.job in self.expired:
            job.end_waiting(TaskEvent.EXPIRE, task.index)

    def orphans(self) -> bool:
        for job in self.jobs.values():  # noqa: SIM110 - asked for every change of every order
            if job.counts[_ORPHANED]:
                return True
        return False

    def ready(self, job_name: str, now: str) -> int:
        """The number of tasks of the job that may be placed now, as far as times and dependencies go."""
        if (self.order.not_before or "") > now or (self.depends is not None and self._waits(job_name, self.depends)):
            return 0
        return self.jobs[job_name].ready(now)

    def _waits(self, job_name: str, depends: Dependencies) -> bool:
        """A job that succeeded stays so: each dependency is looked at until it is met, and never again."""
        after = depends.after.get(job_name, ())
        if self.passed is None:
            self.passed = {}
        passed = self.passed.get(job_name, 0)
        while passed < len(after) and self.jobs[after[passed]].done():
            passed += 1
        self.passed[job_name] = passed
        return passed < len(after)

    def waits_for(self, job_name: str) -> tuple[str, ...]:
        """The jobs that still have to succeed before this job may begin."""
        after = self.depends.after.get(job_name, ()) if self.depends is not None else ()
        return tuple(name for name in after if not self.jobs[name].done())

    def blocked(self, job_name: str) -> bool:
        """Whether the job can never run: a dependency, direct or not, failed or was cancelled."""
        return job_name in self.stuck

    def next_time(self, now: str) -> str | None:
        """The next moment at which more tasks become ready by time alone."""
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
        """The number of the job's tasks that wait to be placed; 0 for a job that can never run."""
        return 0 if job_name in self.stuck else self.jobs[job_name].pending()

    def pending(self) -> int:
        waiting = 0
        for job in self.jobs.values():
            waiting += job.counts[_NEW] + job.counts[_WAITING_RETRY]
        for name in self.stuck:
            waiting -= self.jobs[name].pending()
        return waiting

    def waiting(self) -> int:
        """Tasks that wait for a placement which is still wanted: also of paused orders, without held tasks."""
        return 0 if self.ending else self.pending()

    def wants_room(self) -> bool:
        """Whether the scheduler has work to do for the order, times apart."""
        return not self.order.paused and not self.ending and self.pending() > 0

    def counts(self) -> Counts:
        jobs = self.jobs.values()
        if len(jobs) == 1:
            (total,) = [job.counts for job in jobs]
        else:
            total = [sum(counts) for counts in zip([0] * len(TaskState), *(job.counts for job in jobs), strict=True)]
        new, placed, retry, succeeded, failed, cancelled, held, orphaned, called_off, expired = total
        running = self.running
        pending, cancelled = new + retry + orphaned, cancelled + called_off
        if self.ending:
            pending, cancelled, held = orphaned, cancelled + new + retry + held, 0
        elif self.stuck:
            never = sum(self.jobs[name].pending() for name in self.stuck)
            pending, cancelled = pending - never, cancelled + never
        return Counts(
            pending=pending,
            placed=placed - running,
            running=running,
            succeeded=succeeded,
            failed=failed + expired,
            cancelled=cancelled,
            held=held,
        )

    def percent(self, *, ending: int = 0) -> int:
        """The progress: ended tasks count whole, running tasks as reported.

        `ending`: the number of last tasks that count as ended already.
        """
        total = max(self.order.tasks_total, 1)
        ended = ending
        for job in self.jobs.values():
            _, _, _, succeeded, failed, cancelled, _, _, called_off, expired = job.counts
            ended += succeeded + failed + cancelled + called_off + expired
        return min(100, (100 * ended + (0 if ending else self.percents)) // total)


def check(resolved: Resolved) -> None:
    """Broken for content that admission would refuse."""
    names = {job.job.name for job in resolved.jobs}
    if len(names) != len(resolved.jobs):
        raise Broken("two jobs of the order have one name")
    if any(job.count < 0 for job in resolved.jobs) or resolved.task_count() > MAX_TASKS:
        raise Broken(f"an order has 0 to {MAX_TASKS} tasks")
    if not all(sane(job.job.requests or {}) for job in resolved.jobs):
        raise Broken("a job of the order requests an insane amount")
    after = {job.job.name: job.after for job in resolved.jobs if job.after}
    if not all(names.issuperset(before) for before in after.values()) or dependencies.waiting_for_itself(after):
        raise Broken("a job of the order depends on a job that does not exist, or on itself")


def check_order(order: Order) -> None:
    """Broken for an order that admission would refuse."""
    broken = order.misfit()
    if broken is not None:
        raise Broken(": ".join(broken))
