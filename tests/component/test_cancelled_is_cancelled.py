"""Placements that are on their way while their order ends: whichever is first wins, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from controlplane.aio.clock import SystemClock
from controlplane.model import times
from controlplane.model.job import FailurePolicy
from controlplane.model.order import TaskSelection
from controlplane.model.settings import Settings
from controlplane.store import keys
from controlplane.store.transaction import Item
from tests.builders import OrderBuilder, a_fulfilment, a_session, a_target, an_order
from tests.component.leader_stage import Replica, following
from tests.component.leading_stage import Stage, leading, places
from tests.etcd import Etcd

# Long enough for a leader that would not wait to have written its word.
MOMENT_SECONDS = 0.3
SOON = Settings(joblet_lease=2, heartbeat=0.5, kill_grace=0.5, target_grace=0.5, target_suspect=0.5)


class Gate:
    """Holds back groups that place something, while it is shut."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.waiting = asyncio.Event()

    async def __call__(self, items: Sequence[Item]) -> None:
        if any(places(item) for item in items):
            self.waiting.set()
            await self.open.wait()

    def shut(self) -> None:
        self.open.clear()
        self.waiting.clear()


async def change(stage: Stage, order: str, **wishes: object) -> None:
    stored = stage.read(keys.ORDERS, order)
    assert stored is not None
    await stage.write({keys.order(order): replace(stored, **wishes)})


async def held(stage: Stage, gate: Gate, builder: OrderBuilder) -> str:
    """An order whose placement is under way, and held."""
    gate.shut()
    order = await stage.submit(builder)
    await asyncio.wait_for(gate.waiting.wait(), 30)
    return order


def left_over(stage: Stage) -> list[str]:
    snapshot = stage.cache.snapshot
    return [entry.stored.key for tree in (keys.DESIRED, keys.CLAIMS) for entry in snapshot.all(tree)]


@pytest.mark.parametrize(
    "wishes", [{"cancel": True}, {"cancel_tasks": (TaskSelection(job="job-0"),)}], ids=["order", "last tasks"]
)
@pytest.mark.parametrize("unique", [False, True])
async def test_an_order_that_is_cancelled_while_it_is_being_placed_is_not_placed(
    etcd: Etcd, wishes: dict[str, object], unique: bool
) -> None:
    gate = Gate()
    async with leading(etcd, gate) as stage:
        await stage.join("t1", cpu=100)
        builder = an_order().holding("x") if unique else an_order().of(60)
        order = await held(stage, gate, builder.jobs(cpu=1))
        await change(stage, order, **wishes)
        await asyncio.sleep(MOMENT_SECONDS)
        gate.open.set()
        await stage.is_in(order, "Cancelled")
        assert stage.refused_placements > 0
        after = await stage.submit(an_order().jobs(cpu=1))
        await stage.is_placed(after)
        assert [one.order for one in stage.placed(order)] == []
        assert [key for key in left_over(stage) if "/claims/" in key] == []
        assert stage.phase(order) == "Cancelled"


async def test_an_order_that_is_paused_while_it_is_being_placed_is_placed_when_it_is_resumed(etcd: Etcd) -> None:
    gate = Gate()
    async with leading(etcd, gate) as stage:
        await stage.join("t1", cpu=100)
        order = await held(stage, gate, an_order().jobs(cpu=1))
        await change(stage, order, paused=True)
        await stage.is_in(order, "Paused")
        gate.open.set()
        other = await stage.submit(an_order().jobs(cpu=1))
        await stage.is_placed(other)
        assert stage.refused_placements > 0
        assert stage.placed(order) == []
        await change(stage, order, paused=False)
        await stage.is_placed(order)


async def test_a_deadline_that_passes_while_an_order_is_being_placed_waits_for_the_outcome(etcd: Etcd) -> None:
    gate = Gate()
    async with leading(etcd, gate) as stage:
        await stage.join("t1", cpu=100)
        gate.shut()
        order, now = an_order().jobs(cpu=1).build(), times.show(SystemClock().wall())
        await stage.write({keys.order(order.id): replace(order, created=now, deadline=0.5)})
        await asyncio.wait_for(gate.waiting.wait(), 30)
        await asyncio.sleep(0.5 + MOMENT_SECONDS)
        assert stage.phase(order.id) == "Pending"
        gate.open.set()
        (placed,) = await stage.is_placed(order.id)
        await stage.until(lambda: [one.want for one in stage.placed(order.id)] == ["stop"])
        await stage.report(placed, "Cancelled")
        await stage.is_in(order.id, "Failed")
        assert left_over(stage) == []


async def test_a_failure_that_fails_the_order_stops_what_was_being_placed_meanwhile(etcd: Etcd) -> None:
    gate = Gate()
    async with leading(etcd, gate) as stage:
        await stage.join("t1", cpu=1)
        order = an_order().of(2).jobs(cpu=1).build()
        policies = (FailurePolicy(action="fail_order"),)
        await stage.write({keys.order(order.id): replace(order, failure_policies=policies)})
        (first,) = await stage.is_placed(order.id)
        gate.shut()
        await stage.write(
            {keys.config("targets", "t2"): a_target("t2", cpu=1), keys.live("t2"): a_session("t2", cpu=1)}
        )
        await asyncio.wait_for(gate.waiting.wait(), 30)
        await stage.report(first, "Failed", reason="ExitCode")
        await stage.until(lambda: bool(stage.ended(order.id)))
        await asyncio.sleep(MOMENT_SECONDS)
        assert stage.phase(order.id) not in ("Failed", "Cancelled")
        gate.open.set()
        (second,) = await stage.is_placed(order.id)
        await stage.until(lambda: [one.want for one in stage.placed(order.id)] == ["stop"])
        await stage.report(second, "Cancelled")
        await stage.is_in(order.id, "Failed")
        assert left_over(stage) == []


async def test_a_large_order_is_not_slowed_by_the_folding_of_its_status(etcd: Etcd) -> None:
    """Placed over several cycles, each with many items, while its status moves all the time."""
    async with leading(etcd) as stage:
        await stage.write({keys.SETTINGS: Settings(cycle_budget=500)})
        await stage.join("t1", cpu=5000)
        order = await stage.submit(an_order().of(2000).jobs(cpu=1))
        folds = 0

        async def fold() -> None:
            nonlocal folds
            while True:
                status = stage.read(keys.ORDER_STATUS, order)
                if status is not None:
                    folds += 1
                    await stage.write({keys.order_status(order): replace(status, percent=folds % 100)})
                await asyncio.sleep(0)

        folding = asyncio.create_task(fold())
        await stage.is_placed(order, 2000)
        folding.cancel()
        assert folds >= 3
        assert len([cycle for cycle in stage.cycles() if cycle.placed]) >= 3
        assert stage.phase(order) == "Running"
        assert stage.refused_placements == 0


@pytest.mark.parametrize("gone", [False, True], ids=["final", "gone"])
async def test_what_is_placed_for_an_order_that_is_over_is_stopped_and_released(etcd: Etcd, gone: bool) -> None:
    async with leading(etcd) as stage:
        await stage.join("t1", cpu=4)
        order = await stage.submit(an_order().jobs(cpu=1))
        (placed,) = await stage.is_placed(order)
        await stage.is_in(order, "Running")
        before = stage.read(keys.ORDER_STATUS, order)
        assert before is not None
        over = None if gone else replace(before, phase="Cancelled", finished=before.started)
        await stage.write({keys.order(order): None} if gone else {keys.order_status(order): over})
        await stage.until(lambda: [one.want for one in stage.placed(order)] == ["stop"])
        await stage.report(placed, "Cancelled")
        await stage.until(lambda: left_over(stage) == [])
        if not gone:
            assert stage.phase(order) == "Cancelled"


async def test_the_next_leader_ends_what_an_earlier_one_left_placed(etcd: Etcd) -> None:
    one = a_fulfilment(an_order().identity).task(0).holding("x")
    async with following(etcd.endpoint, Replica) as replica:
        await replica.join("t1", cpu=4)
        claims = {keys.claim(claim.resource): claim for claim in one.claims()}
        await replica.write({keys.desired("t1", one.identity): one.build(), **claims})
        await replica.report(one.build(), "Succeeded")
    async with leading(etcd) as stage:
        await stage.until(lambda: left_over(stage) == [])
        await stage.write({keys.config("targets", "t1"): replace(a_target("t1", cpu=4), drain=True)})
        await stage.until(lambda: (s := stage.read(keys.TARGET_STATUS, "t1")) is not None and s.phase == "Drained")


async def test_a_claim_goes_when_its_holder_is_not_placed_any_more(etcd: Etcd) -> None:
    async with leading(etcd) as stage:
        await stage.write({keys.SETTINGS: SOON})
        await stage.join("t1", cpu=4)
        order = await stage.submit(an_order().holding("x").jobs(cpu=1))
        (placed,) = await stage.is_placed(order)
        await stage.write({keys.desired("t1", placed.id): None})
        await stage.until(lambda: [one.tasks[0].attempt for one in stage.placed(order)] == [2])
        claim = stage.read(keys.CLAIMS, "x")
        assert claim is not None
        assert claim.fulfilment == stage.placed(order)[0].id


async def test_a_claim_stays_while_the_joblet_still_stops_what_is_not_placed_any_more(etcd: Etcd) -> None:
    async with leading(etcd) as stage:
        await stage.write({keys.SETTINGS: SOON})
        await stage.join("t1", cpu=4)
        order = await stage.submit(an_order().holding("x").jobs(cpu=1))
        (placed,) = await stage.is_placed(order)
        dying = replace(a_session("t1", cpu=4), leftovers=1)
        await stage.write({keys.live("t1"): dying, keys.desired("t1", placed.id): None})
        await asyncio.sleep(float(SOON.target_grace) + MOMENT_SECONDS)
        assert stage.read(keys.CLAIMS, "x") is not None
        await stage.write({keys.live("t1"): replace(dying, leftovers=0)})
        await stage.until(lambda: [one.tasks[0].attempt for one in stage.placed(order)] == [2])
