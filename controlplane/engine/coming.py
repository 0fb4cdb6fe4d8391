"""Tasks that become ready at a known moment, and tasks that wait again when they are stopped: what a forecast must know
beside the world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from controlplane.cache.detour import STRAIGHT
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.engine.backlog import groups_of, rank_of
from controlplane.engine.forecast import Known, Waiting
from controlplane.engine.rules.book import Book
from controlplane.engine.service import Group
from controlplane.engine.signature import signature_of
from controlplane.engine.world import World
from controlplane.model import times
from controlplane.model.fulfilment import Fulfilment

# Moments of one order that are looked at, and orders that are: a forecast is for a person who waits.
_MOST_MOMENTS = 8
_MOST_ORDERS = 10_000


def known_of(ledgers: Ledgers, world: World, left_out: Iterable[str], more: Iterable[tuple[float, Waiting]]) -> Known:
    """`more` are tasks of orders that nobody submitted."""
    out = frozenset(left_out)
    under_way = [ledger for identity, ledger in ledgers.orders.items() if identity not in out]
    soon = [one for ledger in under_way[:_MOST_ORDERS] for one in _coming(ledger, world)]
    return Known(
        coming=(*soon, *more),
        limits=_counted(under_way, world) if world.book.limits else {},
        of=lambda fulfilment: _again(ledgers, world, fulfilment),
    )


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
            facts = world.book.facts(ledger.order, resolved.job)
            yield Waiting(
                priority=world.book.priority_of(facts, ledger.order.priority, world.now),
                owner=ledger.order.owner,
                signature=signature_of(ledger, resolved.job, facts, STRAIGHT),
                group=Group(rank_of(ledger, position), resolved.job.name, count),
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
