"""Wishes about an order under way, or about single tasks: cancel, pause, move, release. A repeated wish is stored once.

A wish is a change of the order, checked against the ledger of this replica, which has seen every change before the
wish. The wishes of an order are bounded in number: answered wishes make room for others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from controlplane.cache.job_ledger import JobLedger
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.wishes import cancelled
from controlplane.engine.world import row_of
from controlplane.model.errors import IllegalTransition, Invalid, LimitExceeded, NotFound, Unavailable
from controlplane.model.fulfilment import TaskRef
from controlplane.model.lifecycle import FINAL_ORDER, OrderPhase
from controlplane.model.order import Move, Order, Release, Stopped, TaskSelection
from controlplane.model.task import FINAL_TASK, OVER, PHASE_OF, TaskPhase, TaskState

T = TypeVar("T")

MAX_WISHES = 1000

OrderChange = Callable[[Order, str], Order]


def cancel(order: Order, phase: str) -> Order:
    if phase == OrderPhase.CANCELLED:
        return order
    not_final(order, phase, "cancelled")
    return replace(order, cancel=True)


def pause(order: Order, phase: str) -> Order:
    not_final(order, phase, "paused")
    if order.cancel:
        raise IllegalTransition(f"order {order.id} is being cancelled and cannot be paused", field="id")
    return replace(order, paused=True)


def resume(order: Order, phase: str) -> Order:
    not_final(order, phase, "resumed")
    return replace(order, paused=False)


def not_final(order: Order, phase: str, verb: str) -> None:
    if phase in FINAL_ORDER:
        raise IllegalTransition(f"order {order.id} is {phase} and cannot be {verb}", field="id")


def cancel_tasks(ledgers: Ledgers, job: str, index: int | None) -> OrderChange:
    def change(order: Order, phase: str) -> Order:
        if order.cancel or cancelled(order, job, -1 if index is None else index):
            return order
        not_final(order, phase, "changed")
        ledger = _ledger(ledgers, order)
        tasks = _tasks(ledger, job, index)
        if index is None:
            if job in ledger.expired:
                raise IllegalTransition(
                    f"job {job!r} has tasks that failed by the deadline; name its tasks", field="job"
                )
            kept = tuple(wish for wish in order.cancel_tasks if wish.job != job)
        else:
            if PHASE_OF[tasks.state[index]] == TaskPhase.CANCELLED:
                return order
            _not_over(tasks, job, index, "cancelled")
            kept = order.cancel_tasks
        return replace(order, cancel_tasks=_bounded((*kept, TaskSelection(job=job, index=index))))

    return change


def move_task(ledgers: Ledgers, job: str, index: int, *, to: str, attempt: int | None) -> OrderChange:
    """`attempt`: the attempt to leave its target; None for the newest."""

    def change(order: Order, phase: str) -> Order:
        not_final(order, phase, "moved")
        ledger = _ledger(ledgers, order)
        tasks = _tasks(ledger, job, index)
        here = tasks.attempt(index)
        leaving = here if attempt is None else attempt
        if leaving < here:
            return order
        if leaving > here:
            raise NotFound(f"attempt: the last one of {job}/{index} is {here}", field="attempt")
        if ledger.ending or cancelled(order, job, index):
            raise IllegalTransition(f"task {job}/{index} is being cancelled and cannot be moved", field="index")
        _not_over(tasks, job, index, "moved")
        if tasks.state[index] == TaskState.HELD:
            raise IllegalTransition(f"task {job}/{index} is held; release it instead", field="index")
        if to:
            _large_enough(ledgers, ledger, job, to)
        if not to and tasks.state[index] not in (TaskState.PLACED, TaskState.ORPHANED):
            # The task has no target to leave.
            return order
        open_ = tuple(wish for wish in order.moves if _open(ledger, wish) and (wish.job, wish.index) != (job, index))
        return replace(order, moves=_bounded((*open_, Move(job=job, index=index, attempt=leaving, to=to))))

    return change


def release_tasks(ledgers: Ledgers, job: str, index: int | None) -> OrderChange:
    """All tasks of the order without a job; tasks held later stay held."""

    def change(order: Order, phase: str) -> Order:
        not_final(order, phase, "released")
        ledger = _ledger(ledgers, order)
        if job:
            _tasks(ledger, job, index)
        if not any(_held(tasks, index) for name, tasks in ledger.jobs.items() if job in ("", name)):
            return order
        kept = (wish for wish in order.releases if not _within(wish, job, index) and _needed(ledger, wish))
        release = Release(until=ledgers.cache.revision, job=job, index=index)
        return replace(order, releases=_bounded((*kept, release)))

    return change


def confirm_stopped(ledgers: Ledgers, job: str, index: int) -> OrderChange:
    """A person's word for the end of an attempt on a silent target: no program can know the end."""

    def change(order: Order, phase: str) -> Order:
        not_final(order, phase, "released")
        ledger = _ledger(ledgers, order)
        attempt = _tasks(ledger, job, index).attempt(index)
        word = Stopped(job=job, index=index, attempt=attempt)
        if word in order.stopped:
            return order
        target = _place(ledger, word)
        if target is None:
            raise IllegalTransition(f"task {job}/{index} is on no target", field="index")
        if ledgers.cache.snapshot.live_entry(target) is not None:
            rule = f"task {job}/{index} is on {target}, whose joblet answers: cancel or move the task instead"
            raise IllegalTransition(rule, field="stopped")
        kept = (wish for wish in order.stopped if _place(ledger, wish) is not None)
        return replace(order, stopped=_bounded((*kept, word)))

    return change


def _large_enough(ledgers: Ledgers, ledger: OrderLedger, job: str, target: str) -> None:
    """Invalid when the target, even empty, could not hold the task: the task would wait for ever."""
    row = row_of(target, ledgers.cache.snapshot, ledgers)
    requests = next((resolved.job.requests or {} for resolved in ledger.resolved.jobs if resolved.job.name == job), {})
    for name, amount in requests.items() if row is not None and row.capacity else ():
        if row is not None and row.capacity.get(name, 0) < amount:
            raise Invalid("to", f"must be large enough: {target} has {row.capacity.get(name, 0)} {name} in all")


def _place(ledger: OrderLedger, word: Stopped) -> str | None:
    """The target with this attempt."""
    wanted = TaskRef(job=word.job, index=word.index, attempt=word.attempt)
    return next((live.fulfilment.target for live in ledger.live.values() if wanted in live.fulfilment.tasks), None)


def _ledger(ledgers: Ledgers, order: Order) -> OrderLedger:
    ledger = ledgers.orders.get(order.id)
    if ledger is None:
        raise Unavailable(f"this replica does not know the tasks of order {order.id} yet; try again")
    return ledger


def _tasks(ledger: OrderLedger, job: str, index: int | None) -> JobLedger:
    tasks = ledger.jobs.get(job)
    if tasks is None:
        raise NotFound(f"job: order {ledger.order.id} has no job {job!r}", field="job")
    if index is not None and not 0 <= index < tasks.count:
        raise Invalid("index", f"must be between 0 and {tasks.count - 1}, not {index}")
    return tasks


def _not_over(tasks: JobLedger, job: str, index: int, verb: str) -> None:
    if PHASE_OF[tasks.state[index]] in FINAL_TASK:
        raise IllegalTransition(f"task {job}/{index} is over and cannot be {verb}", field="index")


def _open(ledger: OrderLedger, move: Move) -> bool:
    """Whether the next attempt is not placed yet."""
    tasks = ledger.jobs.get(move.job)
    return tasks is not None and tasks.attempt(move.index) <= move.attempt and tasks.state[move.index] not in OVER


def _held(tasks: JobLedger, index: int | None) -> bool:
    return tasks.counts[TaskState.HELD] > 0 if index is None else tasks.state[index] == TaskState.HELD


def _within(release: Release, job: str, index: int | None) -> bool:
    """Whether the new release covers this release."""
    return not job or (release.job == job and index in (None, release.index))


def _needed(ledger: OrderLedger, release: Release) -> bool:
    """The release of a single task is needed until the task is placed again."""
    if release.index is None:
        return True
    tasks = ledger.jobs.get(release.job)
    return tasks is not None and tasks.state[release.index] in (TaskState.HELD, TaskState.WAITING_RETRY)


def _bounded(wishes: tuple[T, ...]) -> tuple[T, ...]:
    if len(wishes) > MAX_WISHES:
        rule = f"an order must not hold more than {MAX_WISHES} wishes about single tasks; name a job or the order"
        raise LimitExceeded(f"index: {rule}", field="index")
    return wishes
