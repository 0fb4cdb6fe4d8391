"""F13: the wall clock of one replica is an hour off. It is named; times that people gave move with it, and no more."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controlplane.client import Client
from controlplane.model import times
from controlplane.wire.v1 import cluster_pb2
from tests import faketime
from tests.credentials import TOKEN
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import an_order, load
from tests.robustness.parts import Replica
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.recovery import Fault, lead_with
from tests.robustness.world import Plan, World, a_world

OFF = "replica-2"
HOUR = 3600
# Longer than the clocks are apart: an identity that is older is refused by who takes it for that.
SETTINGS = cluster_pb2.Settings(clean_up=3 * HOUR)
KEPT = ("P1", "P2", "P3", "P4", "P5", "P7")


@pytest.mark.skipif(faketime.find() is None, reason="there is no libfaketime: scripts/setup dev fetches it")
@pytest.mark.parametrize("shift", [HOUR, -HOUR])
async def test_a_replica_an_hour_off_is_named_and_changes_nothing_else(tmp_path: Path, tell: Tell, shift: int) -> None:
    plan = Plan(own_environment={OFF: faketime.environment(f"{shift:+d}s")}, settings=SETTINGS)
    async with a_world(tmp_path, plan) as world, load(world.endpoints) as running:
        rates = await running.warm()
        for replica in world.replicas.values():
            assert await named(replica) == {OFF: pytest.approx(shift, abs=5)}
        await lead_with(world, {OFF})
        # Half an hour ahead of the right time, and an hour and a half.
        near, far = await submit(world, HOUR / 2), await submit(world, 1.5 * HOUR)
        soon = await submit(world, 0)
        tell(await Fault(world).went_on(within=1.0, rates=rates))
        if shift > 0:
            await promises.final(world, {near, soon})
        else:
            await running.answered()
            assert not world.witness.finals({near, soon})
        await lead_with(world, {*world.replicas} - {OFF})
        await promises.final(world, {soon})
        assert not world.witness.finals({far}), "no time moves by more than the clock is off"
        await promises.kept(world, running, *KEPT)


async def named(replica: Replica) -> dict[str, float]:
    """The replicas whose clocks are off, as this one sees it, once it does."""
    async with Client([replica.grpc], token=TOKEN) as client, asyncio.timeout(PATIENCE_SECONDS):
        while True:
            status = await client.cluster.status()
            if found := {one.id: one.clock_off for one in status.replicas if one.HasField("clock_off")}:
                return found
            await asyncio.sleep(0.1)


async def submit(world: World, seconds: float) -> str:
    """An order that is not to start before so many seconds have passed."""
    order = an_order(world.client.mint.make(), priority=100)
    order.not_before = times.show(datetime.now(UTC) + timedelta(seconds=seconds))
    await world.client.orders.submit(order)
    return order.id
