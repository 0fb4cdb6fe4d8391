"""The input of a forecast beside the world: tasks which become ready at a known moment or after other jobs, tasks which
wait again when stopped, and the last moments at which tasks may begin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.placement_hint import ANYWHERE
from controlplane.engine.forecast import Known
from controlplane.engine.ready_groups import rank_of, ready_groups
from controlplane.engine.rules.book import Book
from controlplane.engine.service import Group
from controlplane.engine.signature import signature_of
from controlplane.engine.waiting import OrderJob, Successor, Successors, Waiting
from controlplane.engine.world import World, spread_of
from controlplane.model import deadline, times
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.task import TaskState

# Bounds on the moments looked at for each order, and on the orders: a person waits for the forecast.
_MOST_MOMENTS = 8
_MOST_ORDERS = 10_000


def known_of(ledgers: Ledgers, world: World, left_out: Iterable[str], own: OrderLedger, wait: float) -> Known:
    """`own` is the planned order, which was not submitted and may begin after `wait` seconds."""
    out = frozenset(left_out)
    under_way = [ledger for identity, ledger in ledgers.orders.items() if identity not in out]
    near = [*(ledger for ledger in under_way[:_MOST_ORDERS] if ledger.wants_room()), own]
    soon = [waiting for ledger in near if ledger is not own for waiting in _coming(ledger, world)]
    own_tasks = [(wait, waiting) for waiting in waiting_of(own, world.book, world.now, world.now)]
    return Known(
        coming=(*soon, *own_tasks),
        successors=_successors([ledger for ledger in near if ledger.depends is not None], world),
        latest=_latest(near),
        limits=_counted(under_way, world) if world.book.limits else {},
        of=lambda fulfilment: _again(ledgers, world, fulfilment),
    )


def apart_in(ledgers: Ledgers, left_out: Iterable[str]) -> dict[str, Mapping[str, frozenset[str]]]:
    """The targets with tasks of orders which keep their tasks on different targets, including orders of which no task
    may be placed yet."""
    out = frozenset(left_out)
    return {
        identity: spread_of(ledger)
        for identity, ledger in ledgers.orders.items()
        if ledger.live
        and identity not in out
        and ledger.wants_room()
        and any(resolved.job.spread == "order" for resolved in ledger.resolved.jobs)
    }


def waiting_of(ledger: OrderLedger, book: Book, moment: datetime, now: datetime) -> list[Waiting]:
    """The tasks of the order which may be placed at this moment."""
    groups: list[Waiting] = []
    for position, resolved, hint, ready in ready_groups(ledger, times.show(moment)):
        facts = book.facts(ledger.order, resolved.job)
        gang = ledger.order.id if ledger.resolved.gang else ""
        groups.append(
            Waiting(
                priority=groups[0].priority if gang and groups else book.priority_of(facts, ledger.order.priority, now),
                owner=ledger.order.owner,
                signature=signature_of(ledger, resolved.job, facts, hint),
                group=Group(rank_of(ledger, position), resolved.job.name, ready),
                gang=gang,
            )
        )
    return groups


def _coming(ledger: OrderLedger, world: World) -> Iterator[tuple[float, Waiting]]:
    """The tasks of the order which become ready later by time alone, and in how many seconds."""
    moment = ledger.next_time(times.show(world.now))
    if moment is None:
        return
    there = _counts(waiting_of(ledger, world.book, world.now, world.now))
    for _ in range(_MOST_MOMENTS):
        at = times.parse(moment, "moment")
        waiting = waiting_of(ledger, world.book, at, world.now)
        for tasks in waiting:
            more = tasks.group.count - there[_key(tasks)]
            if more > 0:
                yield (at - world.now).total_seconds(), tasks.counting(more)
        there = _counts(waiting) | there
        moment = ledger.next_time(moment)
        if moment is None:
            return


def _successors(orders: Iterable[OrderLedger], world: World) -> Successors:
    """Tasks which wait for other jobs of their order, and how many tasks of these jobs have yet to end."""
    successors: list[Successor] = []
    left: dict[OrderJob, int] = {}
    for ledger in orders:
        identity = ledger.order.id
        for position, resolved in enumerate(ledger.resolved.jobs):
            name = resolved.job.name
            needs = frozenset(ledger.waits_for(name))
            count = ledger.pending_of(name)
            if needs and count:
                successors.append(Successor(_waiting(ledger, world, position, count), needs))
                left |= {
                    (identity, needed): ledger.jobs[needed].count - ledger.jobs[needed].counts[TaskState.SUCCEEDED]
                    for needed in needs
                }
    return Successors(successors, left)


def _latest(orders: Iterable[OrderLedger]) -> dict[OrderJob, str]:
    """For each job with a deadline the last moment at which tasks of the job may begin."""
    moments: dict[OrderJob, str] = {}
    for ledger in orders:
        for resolved in ledger.resolved.jobs if ledger.order.deadline is not None else ():
            latest = deadline.latest_start(ledger.order, resolved.job)
            if latest is not None:
                moments[ledger.order.id, resolved.job.name] = latest
    return moments


def _key(waiting: Waiting) -> tuple[object, ...]:
    return (waiting.signature, waiting.group.rank, waiting.group.job)


def _counts(waiting: Iterable[Waiting]) -> Counter[tuple[object, ...]]:
    return Counter({_key(tasks): tasks.group.count for tasks in waiting})


def _again(ledgers: Ledgers, world: World, fulfilment: Fulfilment) -> Iterator[Waiting]:
    """The tasks of a stopped fulfilment, as they wait again."""
    ledger = ledgers.orders.get(fulfilment.order)
    if ledger is None:
        return
    tasks = Counter(task.job for task in fulfilment.tasks)
    for position, resolved in enumerate(ledger.resolved.jobs):
        count = tasks[resolved.job.name]
        if count:
            yield _waiting(ledger, world, position, count)


def _waiting(ledger: OrderLedger, world: World, position: int, count: int) -> Waiting:
    """`count` tasks of the job at this position, as they will wait."""
    job = ledger.resolved.jobs[position].job
    facts = world.book.facts(ledger.order, job)
    return Waiting(
        priority=world.book.priority_of(facts, ledger.order.priority, world.now),
        owner=ledger.order.owner,
        signature=signature_of(ledger, job, facts, ANYWHERE),
        group=Group(rank_of(ledger, position), job.name, count),
        gang=ledger.order.id if ledger.resolved.gang else "",
    )


def _counted(under_way: Iterable[OrderLedger], world: World) -> Mapping[str, list[str]]:
    """For each fulfilment the limiting rules which count the tasks of the fulfilment."""
    counted: dict[str, list[str]] = {}
    for ledger in under_way:
        jobs = {resolved.job.name: resolved.job for resolved in ledger.resolved.jobs}
        for identity, live in ledger.live.items():
            row = world.floor.row(live.fulfilment.target)
            for task in live.fulfilment.tasks if row is not None else ():
                if task.job in jobs:
                    facts = world.book.facts(ledger.order, jobs[task.job])
                    ruling = world.book.rule(facts, world.floor.targets, world.now)
                    names = [limit.name for limit in ruling.limits if limit.mask[row]]
                    counted.setdefault(identity, []).extend(names)
    return counted
