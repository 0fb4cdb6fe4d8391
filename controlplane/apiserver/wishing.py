"""Wishes about single tasks of an order under way: cancel, move, release. Each is said once, however often it is sent.

A wish is a change of the order like any other, checked against the ledger of this replica, which has seen everything
that had happened when it was asked. Their number in an order is bounded: what is answered makes room for others.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from controlplane.apiserver.changing import Change, not_final
from controlplane.cache.job_ledger import CALLED_OFF, CANCELLED, EXPIRED, HELD, LIVE, ORPHAN, OVER, RETRY, JobLedger
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.wishes import cancelled
from controlplane.engine.world import row_of
from controlplane.model.errors import IllegalTransition, Invalid, LimitExceeded, NotFound, Unavailable
from controlplane.model.fulfilment import TaskRef
from controlplane.model.order import Move, Order, Release, Stopped, TaskSelection
from controlplane.store import keys

T = TypeVar("T")

MAX_WISHES = 1000


def cancel_tasks(ledgers: Ledgers, job: str, index: int | None) -> Change:
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
            kept = tuple(one for one in order.cancel_tasks if one.job != job)
        else:
            if tasks.state[index] in (CANCELLED, CALLED_OFF):
                return order
            _not_over(tasks, job, index, "cancelled")
            kept = order.cancel_tasks
        return replace(order, cancel_tasks=_bounded((*kept, TaskSelection(job=job, index=index))))

    return change


def move_task(ledgers: Ledgers, job: str, index: int, *, to: str, attempt: int | None) -> Change:
    """`attempt`: the one that is to leave; None for the one that is there."""

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
        if tasks.state[index] == HELD:
            raise IllegalTransition(f"task {job}/{index} is held; release it instead", field="index")
        if to:
            _large_enough(ledgers, ledger, job, to)
        if not to and tasks.state[index] not in (LIVE, ORPHAN):
            # It is on no target that it could leave.
            return order
        open_ = tuple(one for one in order.moves if _open(ledger, one) and (one.job, one.index) != (job, index))
        return replace(order, moves=_bounded((*open_, Move(job=job, index=index, attempt=leaving, to=to))))

    return change


def release_tasks(ledgers: Ledgers, job: str, index: int | None) -> Change:
    """All of the order without a job; what is held later stays held."""

    def change(order: Order, phase: str) -> Order:
        not_final(order, phase, "released")
        ledger = _ledger(ledgers, order)
        if job:
            _tasks(ledger, job, index)
        if not any(_held(tasks, index) for name, tasks in ledger.jobs.items() if job in ("", name)):
            return order
        kept = (one for one in order.releases if not _within(one, job, index) and _needed(ledger, one))
        release = Release(until=ledgers.cache.revision, job=job, index=index)
        return replace(order, releases=_bounded((*kept, release)))

    return change


def confirm_stopped(ledgers: Ledgers, job: str, index: int) -> Change:
    """A person's word for an attempt on a target that is silent: nobody else can say that it is over."""

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
        if ledgers.cache.snapshot.get("inventory", target, keys.LIVE) is not None:
            rule = f"task {job}/{index} is on {target}, whose joblet answers: cancel or move the task instead"
            raise IllegalTransition(rule, field="stopped")
        kept = (one for one in order.stopped if _place(ledger, one) is not None)
        return replace(order, stopped=_bounded((*kept, word)))

    return change


def _large_enough(ledgers: Ledgers, ledger: OrderLedger, job: str, target: str) -> None:
    """Invalid when the target, were it empty, could not hold the task: nobody should wait for that."""
    row = row_of(target, ledgers.cache.snapshot, ledgers)
    requests = next((resolved.job.requests or {} for resolved in ledger.resolved.jobs if resolved.job.name == job), {})
    for name, amount in requests.items() if row is not None and row.capacity else ():
        if row is not None and row.capacity.get(name, 0) < amount:
            raise Invalid("to", f"must be large enough: {target} has {row.capacity.get(name, 0)} {name} in all")


def _place(ledger: OrderLedger, word: Stopped) -> str | None:
    """The target that has this attempt."""
    wanted = TaskRef(job=word.job, index=word.index, attempt=word.attempt)
    return next((live.fulfilment.target for live in ledger.live.values() if wanted in live.fulfilment.tasks), None)


def _ledger(ledgers: Ledgers, order: Order) -> OrderLedger:
    found = ledgers.orders.get(order.id)
    if found is None:
        raise Unavailable(f"this replica does not know the tasks of order {order.id} yet; try again")
    return found


def _tasks(ledger: OrderLedger, job: str, index: int | None) -> JobLedger:
    found = ledger.jobs.get(job)
    if found is None:
        raise NotFound(f"job: order {ledger.order.id} has no job {job!r}", field="job")
    if index is not None and not 0 <= index < found.count:
        raise Invalid("index", f"must be between 0 and {found.count - 1}, not {index}")
    return found


def _not_over(tasks: JobLedger, job: str, index: int, what: str) -> None:
    if tasks.state[index] in OVER or tasks.state[index] in (CALLED_OFF, EXPIRED):
        raise IllegalTransition(f"task {job}/{index} is over and cannot be {what}", field="index")


def _open(ledger: OrderLedger, move: Move) -> bool:
    """Whether the attempt that follows was not placed yet."""
    tasks = ledger.jobs.get(move.job)
    return tasks is not None and tasks.attempt(move.index) <= move.attempt and tasks.state[move.index] not in OVER


def _held(tasks: JobLedger, index: int | None) -> bool:
    return tasks.counts[HELD] > 0 if index is None else tasks.state[index] == HELD


def _within(release: Release, job: str, index: int | None) -> bool:
    """Whether the new one says all that this one says."""
    return not job or (release.job == job and index in (None, release.index))


def _needed(ledger: OrderLedger, release: Release) -> bool:
    """What released one task is needed until that task is placed again."""
    if release.index is None:
        return True
    tasks = ledger.jobs.get(release.job)
    return tasks is not None and tasks.state[release.index] in (HELD, RETRY)


def _bounded(wishes: tuple[T, ...]) -> tuple[T, ...]:
    if len(wishes) > MAX_WISHES:
        rule = f"an order must not hold more than {MAX_WISHES} wishes about single tasks; name a job or the order"
        raise LimitExceeded(f"index: {rule}", field="index")
    return wishes
