"""Scaling beside the scheduler on a real etcd: work brings targets, and no target goes with work on it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from controlplane.aio.clock import SystemClock
from controlplane.aio.failpoint import Failpoints
from controlplane.controller_manager import controllers
from controlplane.controller_manager.made_targets import MadeController, Providing
from controlplane.engine.world import row_of
from controlplane.model.errors import Conflict, Refused
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.scalepolicy import REMOVE, Made, MadePhase, TargetTemplate
from controlplane.scheduler.cycle import Scheduler
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, Outcome, mod_is, put
from controlplane.store.watch import watch
from controlplane.survey.explaining import explain
from controlplane.verify.history import by_revision
from controlplane.verify.p7_lifecycle import LifecycleCheck
from tests.builders import an_identity, an_order
from tests.component.leader_stage import PATIENCE_SECONDS, Replica, Term, following, lead, running
from tests.component.scaling_stage import Cloud, a_policy
from tests.etcd import Etcd

POLICY = keys.config("scalepolicies", "farm")


class Stage(Replica):
    """A replica that leads, with a cloud."""

    term: Term
    writer: FencedWriter
    cloud: Cloud

    async def run(self) -> None:
        clock = SystemClock()
        scheduler = Scheduler(self.ledgers, self.writer, clock, make_identity=an_identity, failpoints=Failpoints())
        providing = Providing({"cloud": self.cloud}, an_identity)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(scheduler.run())
            tasks.create_task(controllers.run(self.ledgers, self.writer, clock, providing=providing))

    async def submit(self, count: int = 1) -> str:
        order = an_order().of(count).jobs(cpu=1).build()
        await self.write({keys.order(order.id): order})
        return order.id

    def made(self) -> dict[str, Made]:
        return {entry.parts[0]: entry.read() for entry in self.cache.snapshot.all(keys.MADE)}

    async def finish(self, order: str) -> None:
        """Plays the joblets until the order is over."""
        done: set[str] = set()
        while self.phase(order) != "Succeeded":
            await self.until(
                lambda: self.phase(order) == "Succeeded" or any(one.id not in done for one in self.placed(order))
            )
            for one in self.placed(order):
                if one.id not in done:
                    done.add(one.id)
                    await self.report(one, "Succeeded")


@asynccontextmanager
async def a_stage(etcd: Etcd) -> AsyncIterator[Stage]:
    async with following(etcd.endpoint, Stage) as stage:
        stage.term, stage.writer = await lead(stage)
        stage.cloud = Cloud(stage.store)
        yield stage


@pytest.fixture
async def stage(etcd: Etcd) -> AsyncIterator[Stage]:
    async with a_stage(etcd) as started:
        yield started


async def test_work_brings_targets_and_its_end_removes_them(stage: Stage) -> None:
    async with running(stage.run()):
        await stage.write({POLICY: a_policy(max=2)})
        order = await stage.submit(6)
        await stage.until(lambda: {one.target for one in stage.placed(order)} == {"farm-1", "farm-2"})
        assert set(stage.cloud.clusters) == {"farm-1", "farm-2"}
        await stage.finish(order)
        await stage.until(lambda: not stage.made() and not list(stage.cache.snapshot.all(keys.TARGETS)))
        assert stage.cloud.clusters == {}
        scaling = stage.read(keys.SCALING, "farm")
        assert scaling is not None
        assert [step.action for step in scaling.timeline] == ["grow", "grow", "shrink", "shrink"]


async def test_no_target_goes_with_work_on_it_however_removals_and_placements_meet(stage: Stage) -> None:
    """Targets go the moment they are empty while orders keep coming; judged by the whole history."""
    begun = await stage.store.revision()
    chance = random.Random(7)
    async with running(stage.run()):
        await stage.write({POLICY: a_policy(max=3, step=3, cool_down=0)})
        for _ in range(10):
            orders = [await stage.submit(chance.randint(1, 3)) for _ in range(2)]
            await asyncio.gather(*(stage.finish(order) for order in orders))
            await asyncio.sleep(chance.choice((0.0, 0.02, 0.3, 0.55)))
    lifecycle = LifecycleCheck()
    lifecycle.start(())
    end = await stage.store.revision()
    removed = 0
    async for batch in watch(stage.store.channels, keys.ROOT, begun + 1):
        for revision, events in by_revision(batch.changes):
            lifecycle.change(revision, events)
            removed += sum(event.tree == keys.MADE and event.deleted for event in events)
        if batch.revision >= end:
            break
    assert lifecycle.verdict().violations == ()
    assert removed >= 2


async def a_ready_target(stage: Stage) -> Made:
    made = Made(
        id="A", target="farm-1", policy="farm", provider="cloud", epoch=1, request="A", phase=MadePhase.UP,
        capacity={"cpu": 1},
    )  # fmt: skip
    await stage.cloud.create(made)
    await stage.write({keys.made("farm-1"): made, POLICY: a_policy(min=1)})
    return made


def a_placement(order: str) -> Fulfilment:
    return Fulfilment(id=an_identity(), epoch=1, cycle=1, order=order, target="farm-1", tasks=())


async def test_a_placement_that_travels_with_the_wish_to_remove_keeps_the_target(stage: Stage) -> None:
    """Compares see what was before their transaction, so both are made: the next step of the removal is refused."""
    made = await a_ready_target(stage)
    entry = stage.cache.snapshot.get(keys.MADE, "farm-1")
    assert entry is not None
    placement = a_placement(await stage.submit())
    guard = mod_is(keys.made("farm-1"), entry.revision)
    leaving = replace(made, want=REMOVE)
    outcomes = await stage.writer.write_all(
        [
            Item((guard,), (put(keys.made("farm-1"), codec.encode(leaving)),)),
            Item((guard,), (put(keys.desired("farm-1", placement.id), codec.encode(placement)),)),
        ]
    )
    assert [outcome.succeeded for outcome in outcomes] == [True, True]
    await stage.cache.reached(outcomes[-1].revision, PATIENCE_SECONDS)
    controller = MadeController(
        stage.ledgers, stage.settling(stage.writer), SystemClock(), Providing({"cloud": stage.cloud}, an_identity)
    )
    await controller.reconcile("farm-1")
    assert stage.made()["farm-1"].phase == MadePhase.UP
    assert stage.cloud.asked["remove farm-1"] == 0


async def test_a_removal_that_did_not_see_a_placement_is_refused_by_etcd(etcd: Etcd) -> None:
    """Its leader's picture is old: it shows nothing on the target."""
    async with a_stage(etcd) as stage:
        made = await a_ready_target(stage)
        leaving = replace(made, want=REMOVE)
        await stage.write({keys.made("farm-1"): leaving})
        blind = Replica(stage.store)
        async with running(blind.cache.run()):
            await blind.cache.reached(stage.cache.revision, PATIENCE_SECONDS)
        placement = a_placement(await stage.submit())
        await stage.write({keys.desired("farm-1", placement.id): placement})
        providing = Providing({"cloud": stage.cloud}, an_identity)
        controller = MadeController(blind.ledgers, blind.settling(stage.writer), SystemClock(), providing)
        asked = asyncio.create_task(controller.reconcile("farm-1"))
        await asyncio.sleep(0)
        async with running(blind.cache.run()):
            with pytest.raises(Conflict):
                await asked
        assert stage.made()["farm-1"].phase == MadePhase.UP
        assert stage.cloud.asked["remove farm-1"] == 0


class Late:
    """A term whose commits wait until they are let go."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self.holds = asyncio.Event()
        self.go = asyncio.Event()

    @property
    def epoch(self) -> int:
        return self._term.epoch

    async def commit(self, items: Sequence[Item]) -> Sequence[Outcome]:
        self.holds.set()
        await self.go.wait()
        return await self._term.commit(items)


@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_a_placement_that_is_late_finds_the_door_closed_at_every_step_of_a_removal(
    stage: Stage, steps: int
) -> None:
    """A cycle decided while the target took work; its commit comes when the target is to go, goes, or is gone."""
    await a_ready_target(stage)
    order = await stage.submit()
    late = Late(stage.term)
    scheduler = Scheduler(
        stage.ledgers, FencedWriter(late), SystemClock(), make_identity=an_identity, failpoints=Failpoints()
    )
    providing = Providing({"cloud": stage.cloud}, an_identity)
    controller = MadeController(stage.ledgers, stage.settling(stage.writer), SystemClock(), providing)
    async with running(scheduler.run()):
        await late.holds.wait()
        leaving = replace(stage.made()["farm-1"], want=REMOVE)
        await stage.write({keys.made("farm-1"): leaving})
        for _ in range(steps - 1):
            await controller.reconcile("farm-1")
            await stage.cache.reached(await stage.store.revision(), PATIENCE_SECONDS)
        late.go.set()
        await scheduler.begun.wait()
    assert ("farm-1" in stage.made()) == (steps < 3)
    assert stage.placed(order) == []


async def test_what_is_being_removed_takes_nothing_and_says_why(stage: Stage) -> None:
    made = await a_ready_target(stage)
    assert row_of("farm-1", stage.cache.snapshot, stage.ledgers).ready  # type: ignore[union-attr]
    leaving = replace(made, want=REMOVE)
    await stage.write({keys.made("farm-1"): leaving})
    order = await stage.submit()
    told = explain(stage.ledgers, order, datetime.now(UTC))
    (verdict,) = told.groups[0].targets
    assert (verdict.fits, verdict.filter) == (False, "TargetNotReady")
    assert verdict.sentence == "farm-1 takes no new work: it is being removed by scale policy farm"


async def test_what_has_not_started_moves_to_a_newcomer(stage: Stage) -> None:
    async with running(stage.run()):
        await stage.join("t1", cpu=4)
        first = await stage.submit(2)
        await stage.until(lambda: len(stage.placed(first)) == 2)
        for one in stage.placed(first):
            await stage.report(one, "Running")
        slow = await stage.submit(2)
        await stage.until(lambda: len(stage.placed(slow)) == 2)
        await stage.submit(1)
        await stage.write({POLICY: a_policy(max=1, template=TargetTemplate(driver="process", capacity={"cpu": 4}))})
        await stage.until(lambda: any(one.want == "stop" for one in stage.placed(slow)))
        (moved,) = [one for one in stage.placed(slow) if one.want == "stop"]
        assert moved.reason == "Moved"
        assert all(one.want == "run" for one in stage.placed(first))
        await stage.report(moved, "Cancelled", reason="Cancelled")
        await stage.until(lambda: stage.cache.snapshot.count(keys.ENDED, slow) == 1)
        (ended,) = [entry.read() for entry in stage.cache.snapshot.all(keys.ENDED, slow)]
        assert [(task.reason, task.decision) for task in ended.tasks] == [("Moved", "move")]


async def test_a_provider_that_refuses_is_told_of(stage: Stage) -> None:
    class Closed(Cloud):
        async def create(self, made: Made) -> None:
            raise Refused("out of clusters")

    stage.cloud = Closed(stage.store)
    async with running(stage.run()):
        await stage.write({POLICY: a_policy(min=1)})
        await stage.until(lambda: any(made.error for made in stage.made().values()))
        assert stage.made()["farm-1"].error == "Refused: out of clusters"
        with suppress(KeyError):
            assert stage.made()["farm-1"].phase == MadePhase.REQUESTED
