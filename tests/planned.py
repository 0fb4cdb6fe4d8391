"""Plans beside what then happens: random worlds in which every task runs exactly to its time limit, or ends earlier.

An order is planned, submitted, and followed over cycles of the real engine on virtual time until the order has begun.
Nothing new arrives meanwhile. All that looks random comes from one seed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import msgspec

from controlplane.engine.decision import Decision
from controlplane.model import times
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.job import Job
from controlplane.model.order import Order
from controlplane.model.settings import Quota
from controlplane.store import keys
from controlplane.survey.planning import plan
from tests.engine_stage import Stage, a_job, label, order_of

OWNERS = ("ann", "bob", "cat", "dan")
LICENCES = ("licence-a", "licence-b")
LIMITS = (4, 7, 10, 15, 20, 30, 45, 60)
_MOST_MOMENTS = 2000


class Start(NamedTuple):
    """When a task was to begin at the latest, and when it began: seconds after the plan; None for never."""

    planned: float | None
    real: float | None

    @property
    def late(self) -> float:
        """By how many seconds the task began later than planned; below 0 it began earlier."""
        if self.planned is None:
            return 0.0
        return float("inf") if self.real is None else self.real - self.planned


@dataclass(frozen=True)
class Size:
    """How many targets, owners and waiting orders a world has, and for how many orders a plan is asked."""

    targets: tuple[int, int] = (3, 8)
    owners: tuple[int, int] = (2, 4)
    waiting: tuple[int, int] = (20, 60)
    plans: int = 3


SMALL = Size(targets=(3, 4), waiting=(8, 20), plans=2)


class PlannedWorld(Stage):
    """A task runs for at least the part `shortest` of its time limit; 1 is for exactly the whole of it."""

    def __init__(self, seed: int, size: Size, shortest: float = 1.0) -> None:
        self.random, self._lasting = Random(seed), Random(seed)
        self._shortest, self._ends = shortest, dict[str, datetime]()
        chance = self.random
        self.owners = OWNERS[: chance.randint(*size.owners)]
        quotas = {owner: Quota(live_tasks=chance.randint(3, 12)) for owner in self.owners if chance.random() < 0.4}
        super().__init__(quotas=quotas, placement=chance.choice(("balance", "pack")))
        self._size = size
        for at in range(chance.randint(*size.targets)):
            zone = {"zone": chance.choice("ab")}
            slots = chance.choice((None, None, 3, 6))
            self.target(f"t{at}", cpu=chance.choice((4, 8, 12)), labels=zone, max_fulfilments=slots)
        self.rule("few-films", "job.labels.team == 'film'", limit=chance.randint(2, 4))
        self._fill()

    def _fill(self) -> None:
        """Work that has run for a while, and orders that wait."""
        for _ in range(self.random.randint(3, 8)):
            self.enter(self.order())
            self.settle()
            self.pass_seconds(self.random.randint(0, 6))
        for _ in range(self.random.randint(*self._size.waiting)):
            self.enter(self.order())
        self.settle()

    def starts(self) -> Iterable[Start]:
        """The starts of all tasks of some orders, planned and real."""
        for _ in range(self._size.plans):
            order = self.order()
            planned = self._planned(order)
            self.enter(order)
            yield from _paired(planned, self._begun(order))
            for _ in range(self.random.randint(1, 5)):
                self.enter(self.order())
            self.settle()

    def _planned(self, order: Order) -> Mapping[str, list[float]]:
        found: defaultdict[str, list[float]] = defaultdict(list)
        for one in plan(self.told.ledgers, order, self.now).placements:
            found[one.job] += [float(one.start_in_seconds)] * one.count
        return found

    def _begun(self, order: Order) -> Mapping[str, list[float]]:
        """When the tasks of the order begin, by job; all others go on meanwhile."""
        asked, found = self.now, defaultdict[str, list[float]](list)
        for _ in range(_MOST_MOMENTS):
            for decision in self.settle():
                for one in decision.placements:
                    if one.order == order.id:
                        found[one.job] += [(self.now - asked).total_seconds()] * one.count
            left = self._next()
            if sum(map(len, found.values())) == order.tasks_total or left is None:
                return found
            self.pass_seconds(left)
        raise AssertionError(f"order {order.id} has not begun after {_MOST_MOMENTS} moments")

    def settle(self) -> list[Decision]:
        """Cycles at this moment, until one places nothing: the scheduler is woken by what it placed itself."""
        found = [self.cycle()]
        while found[-1].batches:
            found.append(self.cycle())
        return found

    def _next(self) -> float | None:
        """In how many seconds something ends or may begin; None when nothing will."""
        ends = [self._end_of(one) for one in self._all()]
        moments = [ledger.next_time(times.show(self.now)) for ledger in self.told.ledgers.orders.values()]
        begins = [times.parse(one, "moment") for one in moments if one is not None]
        following = min((*ends, *begins), default=None)
        return None if following is None else (following - self.now).total_seconds()

    def pass_seconds(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.end(*(one for one in self._all() if self._end_of(one) <= self.now))

    def _end_of(self, fulfilment: Fulfilment) -> datetime:
        known = self._ends.get(fulfilment.id)
        if known is None:
            limit = max(float(spec.time_limit or 0) for spec in fulfilment.jobs.values())
            part = self._lasting.uniform(self._shortest, 1.0)
            begun = times.parse(fulfilment.created, "created")
            known = self._ends[fulfilment.id] = begun + timedelta(milliseconds=round(1000 * limit * part))
        return known

    # What there is to do ------------------------------------------------------------------------------------------

    def enter(self, order: Order) -> None:
        self.told.write({keys.order(order.id): order})

    def order(self) -> Order:
        """One that nobody has submitted yet; the next one is younger."""
        chance = self.random
        said: dict[str, Any] = {"owner": chance.choice(self.owners), "priority": chance.choice((30, 50, 50, 70))}
        if chance.random() < 0.08:
            said["not_before"] = times.show(self.now + timedelta(seconds=chance.randint(1, 40)))
        created = times.show(self.now)
        kind = chance.random()
        if kind < 0.15:
            jobs = [(chance.randint(1, 2), self._plain(f"part-{at}")) for at in range(chance.randint(1, 3))]
            return order_of(*jobs, gang=True, created=created, **said)
        if kind < 0.30:
            jobs = [(chance.randint(1, 3), self._job(f"step-{at}")) for at in range(chance.randint(2, 3))]
            after = {f"step-{at}": (f"step-{at - 1}",) for at in range(1, len(jobs))}
            return order_of(*jobs, after=after, created=created, **said)
        if kind < 0.40:
            job = self._plain("packed")
            return order_of((chance.randint(2, 6), job), pack=chance.randint(2, 3), created=created, **said)
        return order_of((chance.randint(1, 4), self._job("job")), created=created, **said)

    def _plain(self, name: str) -> Job:
        chance = self.random
        return a_job(name, requests={"cpu": chance.choice((0.5, 1, 2))}, time_limit=chance.choice(LIMITS))

    def _job(self, name: str) -> Job:
        """One with something that may keep it from a target."""
        chance, job = self.random, self._plain(name)
        job = msgspec.structs.replace(job, requests={"cpu": chance.choice((0.5, 1, 2, 4))})
        kind = chance.random()
        if kind < 0.15:
            return msgspec.structs.replace(job, resources=(chance.choice(LICENCES),))
        if kind < 0.30:
            return msgspec.structs.replace(job, spread="order")
        if kind < 0.45:
            return msgspec.structs.replace(job, labels={"team": "film"})
        if kind < 0.50:
            return msgspec.structs.replace(job, exclusive=True)
        if kind < 0.60:
            return msgspec.structs.replace(job, labels={"noise": "loud"}, anti_affinity=(label("noise", "In", "loud"),))
        return job


def _paired(planned: Mapping[str, list[float]], real: Mapping[str, list[float]]) -> Iterable[Start]:
    """The starts of each job in order of time, the first planned one with the first real one."""
    for job in sorted({*planned, *real}):
        said, was = sorted(planned.get(job, ())), sorted(real.get(job, ()))
        for at in range(max(len(said), len(was))):
            yield Start(said[at] if at < len(said) else None, was[at] if at < len(was) else None)
