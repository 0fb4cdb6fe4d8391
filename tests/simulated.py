"""Simulated time: a cycle a second of the real engine, with work that comes and ends, without etcd or sleeping.

What the engine decides is bound as the scheduler does it, and ends are released as the controllers do it. All that
looks random comes from one seed.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple

import msgspec

from controlplane.controller_manager import release
from controlplane.engine.decide import decide
from controlplane.engine.decision import Decision
from controlplane.model import times
from controlplane.model.fulfilment import Fulfilment, Observed, ObservedTask
from controlplane.model.job import Job
from controlplane.store import keys
from controlplane.store.transaction import Item
from controlplane.survey.backlog import Backlog
from controlplane.survey.world_builder import WorldBuilder
from tests.engine_stage import Stage, a_job
from tests.picture import Content


class Placed(NamedTuple):
    """So many tasks of an order went to a target in the cycle of that second."""

    second: int
    order: str
    job: str
    target: str
    tasks: int


class Simulation(Stage):
    """`lasts` says how long an attempt runs, in seconds; None is for ever. `stops` says how long one that was asked to
    stop still takes."""

    def __init__(self, seed: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.random = Random(seed)
        self.second = 0
        self.placed: list[Placed] = []
        self.begun: defaultdict[str, list[int]] = defaultdict(list)
        self.failed: list[str] = []
        self.lasts: Callable[[Fulfilment], int | None] = self._half_of_its_limit_or_more
        self.stops: Callable[[Fulfilment], int] = lambda fulfilment: 1
        self._builder, self._backlog = WorldBuilder(self.told.ledgers), Backlog(self.told.ledgers)
        self._touched: set[str] = set()
        self._tasks: dict[str, int] = {}
        self._ends: list[tuple[int, str]] = []
        self._live: dict[str, Fulfilment] = {}
        self._ended: defaultdict[str, list[str]] = defaultdict(list)

    def submit(self, *jobs: tuple[int, Job], gang: bool = False, **said: Any) -> str:
        order = super().submit(*jobs, gang=gang, **said)
        self._touched.add(order)
        self._tasks[order] = sum(count for count, _ in jobs)
        return order

    def step(self) -> Decision:
        """What is due ends; then one cycle; then a second passes."""
        while self._ends and self._ends[0][0] <= self.second:
            self.over(heapq.heappop(self._ends)[1])
        decision = self.cycle()
        for one in decision.placements:
            self.placed.append(Placed(self.second, one.order, one.job, one.target, one.count))
            self.begun[one.order] += [self.second] * one.count
        self.second += 1
        self.now += timedelta(seconds=1)
        return decision

    def decide(self) -> Decision:
        """On a backlog that follows what was touched, as the scheduler does."""
        book = self._builder.book(self.told.ledgers.cache.snapshot)
        self._backlog.update(self._touched, self.now, book)
        self._touched.clear()
        world = self._builder.build(self.now, spread_orders=self._backlog.apart, preempting=self._backlog.preempting)
        return decide(world, self._backlog.queues())

    def _commit(self, items: Iterable[Item]) -> None:
        items = list(items)
        super()._commit(items)
        for operation in (operation for item in items for operation in (*item.then, *item.many)):
            if operation.key.decode().startswith(f"{keys.ROOT}desired/") and operation.value is not None:
                self._note(msgspec.json.decode(operation.value, type=Fulfilment))

    def _note(self, fulfilment: Fulfilment) -> None:
        """It begins, or is asked to stop."""
        self._touched.add(fulfilment.order)
        self._live[fulfilment.id] = fulfilment
        lasts = self.stops(fulfilment) if fulfilment.want == "stop" else self.lasts(fulfilment)
        if lasts is not None:
            heapq.heappush(self._ends, (self.second + lasts, fulfilment.id))

    def _half_of_its_limit_or_more(self, fulfilment: Fulfilment) -> int | None:
        limit = next(iter(fulfilment.jobs.values())).time_limit
        return None if limit is None else self.random.randint(-(-int(limit) // 2), int(limit))

    def over(self, identity: str) -> None:
        """The joblet reports the end, if it did not before, and the leader releases the attempt."""
        fulfilment = self._live.pop(identity, None)
        if fulfilment is None:
            return
        phase = "Cancelled" if fulfilment.want == "stop" else "Succeeded"
        moment = times.show(self.now)
        observed = Observed(
            id=identity,
            target=fulfilment.target,
            session="s",
            report=1,
            phase=phase,
            tasks=tuple(
                ObservedTask(job=task.job, index=task.index, attempt=task.attempt, phase=phase, finished=moment)
                for task in fulfilment.tasks
            ),
            observed=moment,
        )
        self.told.write({keys.observed(fulfilment.target, identity): observed})
        ledger = self.told.ledgers.orders[fulfilment.order]
        ended, item = release.ended_by_report(ledger.live[identity], ledger, epoch=1, now=moment)
        self.told.write({one.key.decode(): one.value for one in item.then})
        self._touched.add(fulfilment.order)
        self._ended[fulfilment.order].append(identity)
        decisions = Counter(task.decision for task in ended.tasks)
        self.failed += [fulfilment.order] * decisions["fail"]
        self._tasks[fulfilment.order] -= decisions["done"] + decisions["fail"]
        if not self._tasks[fulfilment.order]:
            self._clean_up(fulfilment.order)

    def _clean_up(self, order: str) -> None:
        gone: dict[str, Content] = {keys.ended(order, identity): None for identity in self._ended.pop(order)}
        self.told.write({**gone, keys.order(order): None})

    # What a test asks ---------------------------------------------------------------------------------------------

    def is_live(self, fulfilment: str) -> bool:
        return fulfilment in self._live

    def waits(self, order: str) -> bool:
        """Whether a task of it is not placed."""
        live = sum(len(one.tasks) for one in self._live.values() if one.order == order)
        return self._tasks[order] > live

    def running(self) -> Iterator[Fulfilment]:
        return iter(self._live.values())

    def used(self) -> float:
        return float(sum(one.requests.get("cpu", 0) for one in self._live.values()))


class Stream:
    """Small tasks with time limits, of several owners, that ask for so many cpus on average."""

    def __init__(self, simulation: Simulation, cpus: float, *, sizes: tuple[int, ...], limits: tuple[int, ...]) -> None:
        self._simulation = simulation
        self._cpus, self._sizes, self._limits = cpus, sizes, limits
        self._owed = 0.0

    def flow(self) -> None:
        """What comes in one second; every other task is loud."""
        random = self._simulation.random
        self._owed += self._cpus
        while self._owed > 0:
            size, limit = random.choice(self._sizes), random.choice(self._limits)
            labels = {"noise": "loud"} if random.random() < 0.5 else {}
            job = a_job("small", requests={"cpu": size}, time_limit=limit, labels=labels)
            self._simulation.submit((1, job), owner=random.choice(("ann", "bob", "cat")))
            # It runs for three quarters of its limit on average.
            self._owed -= size * 0.75 * limit
