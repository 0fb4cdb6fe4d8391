"""What must hold over time: properties of hundreds of cycles, with work that comes and ends, on virtual time."""

from __future__ import annotations

from collections import Counter
from functools import cache
from statistics import mean
from typing import Any

import pytest

from controlplane.engine.decision import Decision
from controlplane.engine.preempting import Eviction
from controlplane.model.job import Job
from controlplane.model.settings import Quota
from tests.engine_stage import a_job, label
from tests.simulated import Simulation, Stream

CYCLES = 500
WARM = 100
LIMITS = (10, 20, 40)
CPUS = 16
TARGETS = 20


def a_simulation(seed: int, *, targets: int = TARGETS, cpu: int = CPUS, **settings: Any) -> Simulation:
    simulation = Simulation(seed, **settings)
    for at in range(targets):
        simulation.target(f"t{at:02d}", cpu=cpu)
    return simulation


# Starvation ---------------------------------------------------------------------------------------------------------

QUIET = label("noise", "In", "loud")
LARGE: dict[str, tuple[int, dict[str, Any]]] = {
    "a quarter of a target": (1, {"requests": {"cpu": CPUS // 4}}),
    "a whole target": (1, {"requests": {"cpu": CPUS}}),
    "a gang": (6, {"requests": {"cpu": CPUS // 2}}),
    "spread": (8, {"requests": {"cpu": CPUS // 2}, "spread": "order"}),
    "away from loud work": (4, {"requests": {"cpu": CPUS // 4}, "anti_affinity": (QUIET,)}),
    "exclusive": (1, {"requests": {"cpu": CPUS // 4}, "exclusive": True}),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", LARGE)
def test_nobody_starves_beside_a_stream_of_small_tasks_that_is_more_than_there_is_room_for(
    kind: str, seed: int
) -> None:
    """Whatever waits begins within twice the longest time limit, and hardly any room is idle meanwhile."""
    simulation = a_simulation(seed)
    stream = Stream(simulation, 1.1 * TARGETS * CPUS, sizes=(1, 2, 4), limits=LIMITS)
    count, said = LARGE[kind]
    submitted: dict[str, int] = {}
    used: list[float] = []
    for second in range(CYCLES):
        stream.flow()
        if second in (150, 300):
            job = a_job("large", time_limit=max(LIMITS), **said)
            submitted[simulation.submit((count, job), gang=kind == "a gang", owner="guest")] = second
        simulation.step()
        used.append(simulation.used() / (TARGETS * CPUS))
    for order, second in submitted.items():
        begun = simulation.begun[order]
        assert len(begun) == count
        assert max(begun) - second <= 2 * max(LIMITS)
    if kind != "exclusive":
        assert mean(used[WARM:]) >= 0.9


@pytest.mark.parametrize("seed", [1, 2])
def test_work_without_an_end_on_every_target_closes_none_for_a_task_that_needs_a_whole_one(seed: int) -> None:
    simulation = a_simulation(seed, targets=4, cpu=8)
    service = simulation.submit((4, a_job("service", spread="order")), priority=90)
    stream = Stream(simulation, 1.1 * 4 * 7, sizes=(1, 2), limits=LIMITS)
    used: list[float] = []
    large = ""
    for second in range(CYCLES):
        stream.flow()
        if second == WARM:
            large = simulation.submit((1, a_job("large", requests={"cpu": 8}, time_limit=40)), owner="guest")
        simulation.step()
        used.append(simulation.used() / 32)
    assert len(simulation.begun[service]) == 4
    assert not simulation.begun[large]
    assert mean(used[WARM:]) >= 0.9
    for target in ("t00", "t01", "t02", "t03"):
        seconds = [one.second for one in simulation.placed if one.target == target]
        gaps = [after - before for before, after in zip(seconds, [*seconds[1:], CYCLES], strict=True)]
        assert max(gaps) <= max(LIMITS)


@pytest.mark.parametrize("seed", [1, 2])
def test_when_work_without_an_end_is_over_the_task_that_needs_its_target_begins(seed: int) -> None:
    simulation = a_simulation(seed, targets=4, cpu=8)
    simulation.submit((4, a_job("service", spread="order")), priority=90)
    stream = Stream(simulation, 1.1 * 4 * 7, sizes=(1, 2), limits=LIMITS)
    large, over = "", 300
    for second in range(CYCLES):
        stream.flow()
        if second == WARM:
            large = simulation.submit((1, a_job("large", requests={"cpu": 8}, time_limit=40)), owner="guest")
        if second == over:
            simulation.over(next(one.id for one in simulation.running() if "service" in one.jobs))
        simulation.step()
    assert [over <= second <= over + 2 * max(LIMITS) for second in simulation.begun[large]] == [True]


# Fairness -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_owners_who_always_wait_have_equal_shares_whatever_each_asks_for(seed: int) -> None:
    simulation = a_simulation(seed)
    shares: dict[str, list[float]] = {"much": [], "little": []}
    for _ in range(CYCLES):
        for owner in ("much", "much", "little"):
            limit = simulation.random.choice(LIMITS)
            simulation.submit((20, a_job(requests={"cpu": 2}, time_limit=limit)), owner=owner)
        simulation.step()
        for owner, seen in shares.items():
            used = sum(float(one.requests["cpu"]) for one in simulation.running() if one.owner == owner)
            seen.append(used / (TARGETS * CPUS))
    assert abs(mean(shares["much"][WARM:]) - mean(shares["little"][WARM:])) <= 0.02


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_of_one_owner_the_order_with_the_earlier_deadline_begins_first(seed: int) -> None:
    simulation = a_simulation(seed, targets=4, cpu=8)
    random = simulation.random
    ranks: dict[str, tuple[object, float, int]] = {}
    for second in range(CYCLES):
        for _ in range(random.randint(0, 3)):
            size, deadline = random.choice((1, 2)), random.choice((None, *range(2_000, 8_000, 500)))
            job = a_job(f"size-{size}", requests={"cpu": size}, time_limit=20)
            owner = random.choice(("ann", "ann", "bob"))
            order = simulation.submit((random.randint(1, 3), job), owner=owner, deadline=deadline)
            ranks[order] = ((owner, size), second + deadline if deadline else float("inf"), second)
        waiting = {order for order in ranks if not simulation.begun.get(order)}
        simulation.step()
        begun = {order for order in waiting if simulation.begun.get(order)}
        for late in begun:
            alike = {order for order in waiting - begun if ranks[order][0] == ranks[late][0]}
            assert not any(ranks[order][1:] < ranks[late][1:] for order in alike)
    assert len(ranks) > len([order for order in ranks if simulation.begun.get(order)]) > 200


# Preemption ---------------------------------------------------------------------------------------------------------


class Preempting:
    """Low work that may be stopped, more than there is room for, and now and then high work that stops it.

    `alone`: high work comes one task at a time, and only when none waits.
    """

    def __init__(self, seed: int, *, alone: bool) -> None:
        self.simulation = a_simulation(seed, targets=12, cpu=8, quotas={"vip-2": Quota(quantities={"cpu": 12})})
        self.simulation.rule("licences", "job.labels.kind == 'licensed'", limit=3)
        self.simulation.rule("urgent", "job.labels.kind == 'urgent'", priority=40)
        random = self.simulation.random
        self.simulation.stops = lambda fulfilment: random.randint(1, 3)
        self.simulation.lasts = lambda fulfilment: random.randint(5, 20)
        # The effective priority of each job of each order; and what it wants of which only some may have.
        self.priorities: dict[str, dict[str, int]] = {}
        self.scarce: dict[str, set[str]] = {}
        self._alone = alone

    def arrive(self) -> None:
        random = self.simulation.random
        for _ in range(random.randint(1, 2)):
            priority = random.choice((10, 20, 30))
            job = self._job("low", random.choice((1, 2, 3, 4)), preemptible=random.random() < 0.9)
            self._submit({"low": priority}, (random.randint(1, 3), job), priority=priority, owner=random.choice("abc"))
        if self._alone and any(self.simulation.waits(order) for order in self._high()):
            return
        if random.random() < (0.8 if self._alone else 0.3):
            job = self._job("high", random.choice((1, 2, 4, 8)))
            owner, count = f"vip-{random.randint(1, 3)}", 1 if self._alone else random.randint(1, 3)
            self._submit({"high": 90}, (count, job), priority=90, preempts=True, owner=owner)
        elif random.random() < 0.1:
            urgent = a_job("urgent", requests={"cpu": 2}, labels={"kind": "urgent"}, preemptible=True, time_limit=20)
            plain = a_job("plain", requests={"cpu": 2}, preemptible=True, time_limit=20)
            owner, both = random.choice("abc"), {"urgent": 90, "plain": 50}
            self._submit(both, (1, urgent), (2, plain), priority=50, preempts=True, owner=owner)

    def _submit(self, priorities: dict[str, int], *jobs: tuple[int, Job], **said: Any) -> None:
        order = self.simulation.submit(*jobs, **said)
        self.priorities[order] = priorities
        licences = {"a licence" for _, job in jobs if job.labels.get("kind") == "licensed"}
        self.scarce[order] = {
            f"the quota of {said['owner']}",
            *licences,
            *(name for _, job in jobs for name in job.resources),
        }

    def _high(self) -> list[str]:
        return [order for order, jobs in self.priorities.items() if "low" not in jobs]

    def _job(self, name: str, cpu: int, **said: Any) -> Job:
        random = self.simulation.random
        return a_job(
            name,
            requests={"cpu": cpu},
            time_limit=random.choice((None, 20, 40)),
            resources=random.choice([()] * 9 + [("x",), ("y",)]),
            spread=random.choice([None] * 8 + ["order"]),
            labels=random.choice([{}] * 7 + [{"kind": "licensed"}]),
            **said,
        )


class Rooms:
    """Rooms that were made by stopping work: who asked for them, and whether that order had them when they were free.

    A room is the target on which work was stopped in one cycle for one order.
    """

    def __init__(self, work: Preempting) -> None:
        self._work, self._simulation = work, work.simulation
        self._made: list[tuple[int, str, str, str, set[str], int]] = []
        self.evictions: list[Eviction] = []
        # Rooms that the order did not have though a task of it waits; and those of them that no higher work had.
        self.lost: list[str] = []
        self.wasted: list[str] = []

    def note(self, decision: Decision, second: int) -> None:
        """After each cycle."""
        self._ask(decision, second)
        for room in list(self._made):
            made, by, job, target, victims, rooms = room
            if not any(self._simulation.is_live(victim) for victim in victims):
                self._made.remove(room)
                if self._simulation.waits(by) and not self._had(by, target, made, rooms):
                    self.lost.append(f"{by}/{job} on {target}: asked in {made}, free in {second}")
                    self.wasted += self.lost[-1:] if not self._overtaken(by, job, target, made) else []

    def _ask(self, decision: Decision, second: int) -> None:
        asked: dict[tuple[str, str, str], set[str]] = {}
        for one in decision.evictions:
            asked.setdefault((one.by, one.job, one.target), set()).add(one.fulfilment)
        self.evictions += decision.evictions
        rooms_of = Counter(by for by, _, _ in asked)
        self._made += [(second, by, job, target, victims, rooms_of[by]) for (by, job, target), victims in asked.items()]

    def _had(self, by: str, target: str, since: int, rooms: int) -> bool:
        """Whether the order began there; or as many of its tasks began elsewhere, or wait for rooms that were asked for
        no later, as it had asked for rooms."""
        begun = [one for one in self._simulation.placed if one.order == by and one.second > since]
        coming = sum(order == by and made <= since for made, order, _, _, _, _ in self._made)
        return any(one.target == target for one in begun) or sum(one.tasks for one in begun) + coming >= rooms

    def _overtaken(self, by: str, job: str, target: str, since: int) -> bool:
        """Whether work of a higher priority took the target or something else that is scarce, or made room for itself
        there."""
        priority, scarce = self._work.priorities[by][job], self._work.scarce[by]
        for one in self._simulation.placed:
            rival = one.order != by and self._work.priorities[one.order][one.job] > priority
            if rival and one.second > since and (one.target == target or scarce & self._work.scarce[one.order]):
                return True
        asking = [(order, name) for made, order, name, where, _, _ in self._made if where == target and made > since]
        return any(self._work.priorities[order][name] > priority for order, name in asking if order != by)


@cache
def preempted(seed: int, *, alone: bool = False) -> tuple[Simulation, Rooms]:
    work = Preempting(seed, alone=alone)
    rooms = Rooms(work)
    for second in range(CYCLES):
        work.arrive()
        rooms.note(work.simulation.step(), second)
    assert len(rooms.evictions) >= 25
    return work.simulation, rooms


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_room_that_was_made_is_had_by_who_asked_for_it_when_nobody_else_may_have_it(seed: int) -> None:
    """In the first cycle after the ends of those that were stopped."""
    _, rooms = preempted(seed, alone=True)
    assert not rooms.lost


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_room_that_was_made_is_had_by_who_asked_for_it_or_by_work_of_a_higher_priority(seed: int) -> None:
    _, rooms = preempted(seed)
    assert not rooms.wasted


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_orders_never_stop_each_other(seed: int) -> None:
    _, rooms = preempted(seed)
    pairs = {(one.by, one.order) for one in rooms.evictions}
    assert not {(by, other) for by, other in pairs if (other, by) in pairs}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_stopped_for_others_does_not_fail(seed: int) -> None:
    simulation, _ = preempted(seed)
    assert not simulation.failed


def test_a_task_that_is_stopped_for_others_again_and_again_does_not_fail() -> None:
    simulation = a_simulation(1, targets=1, cpu=8)
    whole: dict[str, Any] = {"requests": {"cpu": 8}, "time_limit": 10}
    low = simulation.submit((1, a_job("low", preemptible=True, **whole)), priority=10)
    stopped: list[Eviction] = []
    for _ in range(CYCLES):
        if any(one.order == low and one.want == "run" for one in simulation.running()):
            simulation.submit((1, a_job("high", **whole)), priority=90, preempts=True)
        stopped += simulation.step().evictions
    assert {one.order for one in stopped} == {low}
    assert len(stopped) > 20
    assert not simulation.failed
