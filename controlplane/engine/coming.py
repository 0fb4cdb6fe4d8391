"""What a forecast must know beside the world: tasks that become ready at a known moment or after other jobs, tasks that
wait again when they are stopped, and the last moments at which tasks may begin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from controlplane.cache.detour import STRAIGHT
from controlplane.cache.job_ledger import SUCCEEDED
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.engine.backlog import groups_of, rank_of
from controlplane.engine.forecast import Known
from controlplane.engine.rules.book import Book
from controlplane.engine.service import Group
from controlplane.engine.signature import signature_of
from controlplane.engine.waiting import OrderJob, Successor, Successors, Waiting
from controlplane.engine.world import World, spread_of
from controlplane.model import deadline, times
from controlplane.model.fulfilment import Fulfilment

# Moments of one order that are looked at, and orders that are: a forecast is for a person who waits.
_MOST_MOMENTS = 8
_MOST_ORDERS = 10_000


def known_of(ledgers: Ledgers, world: World, left_out: Iterable[str], own: OrderLedger, wait: float) -> Known:
    """`own` is an order that nobody submitted; it may begin after so many seconds."""
    out = frozenset(left_out)
    under_way = [ledger for identity, ledger in ledgers.orders.items() if identity not in out]
    near = [*(ledger for ledger in under_way[:_MOST_ORDERS] if ledger.wants_room()), own]
    soon = [one for ledger in near if ledger is not own for one in _coming(ledger, world)]
    own_tasks = [(wait, one) for one in waiting_of(own, world.book, world.now, world.now)]
    return Known(
        coming=(*soon, *own_tasks),
        successors=_successors([ledger for ledger in near if ledger.depends is not None], world),
        latest=_latest(near),
        limits=_counted(under_way, world) if world.book.limits else {},
        of=lambda fulfilment: _again(ledgers, world, fulfilment),
    )


def apart_in(ledgers: Ledgers, left_out: Iterable[str]) -> dict[str, Mapping[str, frozenset[str]]]:
    """Where the tasks are of orders that keep their tasks on different targets, also of those of which nothing may be
    placed yet."""
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
    """What may be placed of the order at that moment."""
    found: list[Waiting] = []
    for position, resolved, detour, ready in groups_of(ledger, times.show(moment)):
        facts = book.facts(ledger.order, resolved.job)
        gang = ledger.order.id if ledger.resolved.gang else ""
        found.append(
            Waiting(
                priority=found[0].priority if gang and found else book.priority_of(facts, ledger.order.priority, now),
                owner=ledger.order.owner,
                signature=signature_of(ledger, resolved.job, facts, detour),
                group=Group(rank_of(ledger, position), resolved.job.name, ready),
                gang=gang,
            )
        )
    return found


def _coming(ledger: OrderLedger, world: World) -> Iterator[tuple[float, Waiting]]:
    """What becomes ready later by itself, and when."""
    moment = ledger.next_time(times.show(world.now))
    if moment is None:
        return
    there = _counts(waiting_of(ledger, world.book, world.now, world.now))
    for _ in range(_MOST_MOMENTS):
        at = times.parse(moment, "moment")
        waiting = waiting_of(ledger, world.book, at, world.now)
        for one in waiting:
            more = one.group.count - there[_key(one)]
            if more > 0:
                yield (at - world.now).total_seconds(), replace(one, group=replace(one.group, count=more))
        there = _counts(waiting) | there
        moment = ledger.next_time(moment)
        if moment is None:
            return


def _successors(orders: Iterable[OrderLedger], world: World) -> Successors:
    """Tasks that wait for other jobs of their order, and how many tasks of these have yet to end."""
    found: list[Successor] = []
    left: dict[OrderJob, int] = {}
    for ledger in orders:
        identity = ledger.order.id
        for position, resolved in enumerate(ledger.resolved.jobs):
            name = resolved.job.name
            needs = frozenset(ledger.waits_for(name))
            count = ledger.pending_of(name)
            if needs and count:
                found.append(Successor(_waiting(ledger, world, position, count), needs))
                left |= {(identity, one): ledger.jobs[one].count - ledger.jobs[one].counts[SUCCEEDED] for one in needs}
    return Successors(found, left)


def _latest(orders: Iterable[OrderLedger]) -> dict[OrderJob, str]:
    """For each job with a deadline the last moment at which its tasks may begin."""
    found: dict[OrderJob, str] = {}
    for ledger in orders:
        for resolved in ledger.resolved.jobs if ledger.order.deadline is not None else ():
            latest = deadline.latest_start(ledger.order, resolved.job)
            if latest is not None:
                found[ledger.order.id, resolved.job.name] = latest
    return found


def _key(one: Waiting) -> tuple[object, ...]:
    return (one.signature, one.group.rank, one.group.job)


def _counts(waiting: Iterable[Waiting]) -> Counter[tuple[object, ...]]:
    return Counter({_key(one): one.group.count for one in waiting})


def _again(ledgers: Ledgers, world: World, fulfilment: Fulfilment) -> Iterator[Waiting]:
    """The tasks of a fulfilment that is stopped, as they wait again."""
    ledger = ledgers.orders.get(fulfilment.order)
    if ledger is None:
        return
    tasks = Counter(task.job for task in fulfilment.tasks)
    for position, resolved in enumerate(ledger.resolved.jobs):
        count = tasks[resolved.job.name]
        if count:
            yield _waiting(ledger, world, position, count)


def _waiting(ledger: OrderLedger, world: World, position: int, count: int) -> Waiting:
    """So many tasks of the job at that position, as they will wait."""
    job = ledger.resolved.jobs[position].job
    facts = world.book.facts(ledger.order, job)
    return Waiting(
        priority=world.book.priority_of(facts, ledger.order.priority, world.now),
        owner=ledger.order.owner,
        signature=signature_of(ledger, job, facts, STRAIGHT),
        group=Group(rank_of(ledger, position), job.name, count),
        gang=ledger.order.id if ledger.resolved.gang else "",
    )


def _counted(under_way: Iterable[OrderLedger], world: World) -> Mapping[str, list[str]]:
    """For each fulfilment the rules that limit and count its tasks."""
    found: dict[str, list[str]] = {}
    for ledger in under_way:
        jobs = {resolved.job.name: resolved.job for resolved in ledger.resolved.jobs}
        for identity, live in ledger.live.items():
            row = world.floor.row(live.fulfilment.target)
            for task in live.fulfilment.tasks if row is not None else ():
                if task.job in jobs:
                    facts = world.book.facts(ledger.order, jobs[task.job])
                    ruling = world.book.rule(facts, world.floor.targets, world.now)
                    names = [limit.name for limit in ruling.limits if limit.mask[row]]
                    found.setdefault(identity, []).extend(names)
    return found
