"""What the engine decides, seen in a real etcd: gangs, preemption, moments that come, cycles decided again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from controlplane.aio.clock import SystemClock
from controlplane.aio.failpoint import Failpoints
from controlplane.cache.past import ledgers_at
from controlplane.controller_manager import controllers
from controlplane.engine.decide import decide
from controlplane.model import times
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.job import Job
from controlplane.model.leadership import Cycle
from controlplane.model.settings import Settings
from controlplane.model.target import Target, Window
from controlplane.scheduler.cycle import Scheduler
from controlplane.store import keys
from controlplane.survey.backlog import Backlog
from controlplane.survey.world_builder import WorldBuilder
from tests.builders import a_session, an_identity
from tests.component.leader_stage import Replica, following, lead, running
from tests.engine_stage import a_job, order_of
from tests.etcd import Etcd


class SettableClock(SystemClock):
    """Time goes on as ever, from the hour that a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = timedelta()

    def wall(self) -> datetime:
        return super().wall() + self._ahead

    def set(self, wall: datetime) -> None:
        self._ahead = wall - super().wall()


class Stage(Replica):
    """A replica that leads, on a clock that the test sets."""

    hours: SettableClock

    async def run(self) -> None:
        _, writer = await lead(self)
        self.hours = SettableClock()
        scheduler = Scheduler(self.ledgers, writer, self.hours, make_identity=an_identity, failpoints=Failpoints())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(scheduler.run())
            tasks.create_task(controllers.run(self.ledgers, writer, self.hours))

    async def submit(self, *jobs: tuple[int, Job], **said: Any) -> str:
        order = order_of(*jobs, created=times.show(self.hours.wall()), **said)
        await self.write({keys.order(order.id): order})
        return order.id

    async def is_placed(self, order: str, *, count: int = 1, attempt: int = 1) -> list[Fulfilment]:
        def placed() -> list[Fulfilment]:
            return [one for one in self.placed(order) if one.tasks[0].attempt == attempt and one.want == "run"]

        await self.until(lambda: len(placed()) == count)
        return placed()

    def cycles(self) -> list[Cycle]:
        return sorted((entry.read() for entry in self.cache.snapshot.all(keys.CYCLES)), key=lambda cycle: cycle.n)

    def revisions(self, order: str) -> list[int]:
        """When each of its fulfilments was written."""
        return [entry.revision for entry in self.cache.snapshot.all(keys.DESIRED) if entry.read().order == order]


@pytest.fixture
async def stage(etcd: Etcd) -> AsyncIterator[Stage]:
    async with following(etcd.endpoint, Stage) as started:
        async with running(started.run()):
            await started.until(lambda: bool(started.cycles()))
            yield started


async def test_a_gang_is_written_in_one_transaction_with_its_claims(stage: Stage) -> None:
    for name in ("t1", "t2", "t3"):
        await stage.join(name, cpu=60)
    gang = await stage.submit(
        (300, a_job("workers", requests={"cpu": 0.5})), (1, a_job("head", resources=("licence",))), gang=True
    )
    await stage.is_placed(gang, count=301)
    assert {one.target for one in stage.placed(gang)} == {"t1", "t2", "t3"}
    claim = stage.cache.snapshot.get(keys.CLAIMS, "licence")
    assert claim is not None
    assert {*stage.revisions(gang), claim.revision} == {claim.revision}


async def test_a_gang_is_not_written_in_part_while_it_does_not_fit(stage: Stage) -> None:
    await stage.join("t1", cpu=2)
    first = await stage.submit((1, a_job()), priority=90)
    (one,) = await stage.is_placed(first)
    gang = await stage.submit((3, a_job("part")), gang=True)
    other = await stage.submit((1, a_job("other", time_limit=1)), priority=80)
    # Decided in a cycle that saw the gang, too.
    await stage.is_placed(other)
    assert stage.placed(gang) == []
    await stage.report(one, "Succeeded")
    await stage.join("t2", cpu=2)
    await stage.is_placed(gang, count=3)
    assert len(set(stage.revisions(gang))) == 1


async def test_who_is_preempted_stops_goes_back_to_the_queue_and_runs_again_later(stage: Stage) -> None:
    await stage.join("t1", cpu=1)
    low = await stage.submit((1, a_job(preemptible=True)), priority=10)
    (victim,) = await stage.is_placed(low)
    await stage.report(victim, "Running")
    high = await stage.submit((1, a_job()), priority=90, preempts=True)
    await stage.until(lambda: [(one.want, one.reason) for one in stage.placed(low)] == [("stop", "Preempted")])
    assert stage.placed(high) == []
    (record,) = [entry.read() for entry in stage.cache.snapshot.all(keys.PREEMPTIONS)]
    assert (record.fulfilment, record.by) == (victim.id, high)
    await stage.report(victim, "Cancelled", reason="Cancelled")
    (urgent,) = await stage.is_placed(high)
    await stage.until(lambda: not stage.cache.snapshot.count(keys.PREEMPTIONS))
    assert stage.placed(low) == []
    assert stage.phase(low) not in ("Failed", "Cancelled")
    await stage.report(urgent, "Succeeded")
    (again,) = await stage.is_placed(low, attempt=2)
    await stage.report(again, "Succeeded")
    await stage.until(lambda: stage.phase(low) == stage.phase(high) == "Succeeded")


async def test_a_gang_starts_by_itself_when_its_time_comes(stage: Stage) -> None:
    await stage.join("t1", cpu=8)
    moment = times.show(stage.hours.wall() + timedelta(seconds=0.5))
    gang = await stage.submit((2, a_job()), gang=True, not_before=moment)
    assert all(one.created >= moment for one in await stage.is_placed(gang, count=2))


async def test_a_window_that_opens_wakes_the_scheduler(stage: Stage) -> None:
    opening = datetime(2026, 1, 5, 13, 0, tzinfo=UTC)
    stage.hours.set(opening - timedelta(seconds=1))
    window = Window(days=("mon",), from_="13:00", to="14:00")
    target = Target(name="t1", driver="process", capacity={"cpu": 8}, windows=(window,))
    await stage.write({keys.config("targets", "t1"): target, keys.live("t1"): a_session("t1", cpu=8)})
    order = await stage.submit((1, a_job()))
    (one,) = await stage.is_placed(order)
    assert one.created >= times.show(opening)


async def test_a_rule_that_reads_the_clock_is_asked_again_when_the_minute_is_over(stage: Stage) -> None:
    hour = datetime(2026, 1, 5, 13, 0, tzinfo=UTC)
    stage.hours.set(hour - timedelta(seconds=1))
    await stage.write({keys.config("rules", "later"): _rule("later", "now.hour < 13")})
    await stage.join("t1", cpu=8)
    (one,) = await stage.is_placed(await stage.submit((1, a_job())))
    assert one.created >= times.show(hour)


def _rule(name: str, when: str) -> bytes:
    return msgspec.json.encode({"kind": "Rule", "name": name, "when": when, "then": {"forbid": True}})


async def test_every_cycle_is_decided_the_same_again_on_ledgers_of_its_time(stage: Stage) -> None:
    await stage.write({keys.SETTINGS: Settings(cycle_budget=3)})
    await stage.join("t1", cpu=2)
    await stage.join("t2", cpu=1.3)
    low = await stage.submit((3, a_job(preemptible=True, requests={"cpu": 0.7})), owner="ann", priority=10)
    await stage.is_placed(low, count=3)
    high = await stage.submit((1, a_job(requests={"cpu": 2})), owner="bob", priority=90, preempts=True)
    gang = await stage.submit((2, a_job(spread="order", requests={"cpu": 0.1})), owner="cat", gang=True)
    await stage.until(lambda: any(one.want == "stop" for one in stage.placed(low)))
    for one in stage.placed(low):
        await stage.report(one, "Cancelled", reason="Cancelled")
    await stage.is_placed(high)
    await stage.report(stage.placed(high)[0], "Succeeded")
    await stage.is_placed(gang, count=2)
    cycles = stage.cycles()
    assert sum(cycle.placed for cycle in cycles) >= 6
    for cycle in cycles:
        assert await decided_again(stage, cycle) == cycle.hash


async def decided_again(stage: Stage, cycle: Cycle) -> str:
    ledgers = await ledgers_at(stage.store, cycle.revision)
    now = times.parse(cycle.now, "now")
    builder, backlog = WorldBuilder(ledgers), Backlog(ledgers)
    backlog.update(list(ledgers.orders), now, builder.book(ledgers.cache.snapshot))
    world = builder.build(now, spread_orders=backlog.apart, preempting=backlog.preempting)
    return decide(world, backlog.queues()).digest()
