"""Killing all replicas, or everything with etcd, and starting it again loses nothing and starts nothing twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import an_order, load
from tests.robustness.recovery import Fault
from tests.robustness.world import World, a_world


async def a_long_run(world: World) -> str:
    """A real command that is under way when everything dies."""
    order = an_order(world.client.mint.make(), command=("sleep", "3"), real=True)
    await world.client.orders.submit(order)
    await world.witness.until(lambda: world.witness.phases.get(order.id) == "Running", "it runs")
    return order.id


async def test_all_replicas_die_and_come_back(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        order = await a_long_run(world)
        for replica in world.replicas.values():
            replica.kill()
        for replica in world.replicas.values():
            replica.start()
        tell(await Fault(world).followed(rates=rates))
        await world.ready()
        await promises.final(world, {order})
        promises.succeeded_once(world, {order})
        await promises.kept(world, running)


async def test_everything_dies_with_etcd_and_comes_back(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        order = await a_long_run(world)
        parts = [*world.replicas.values(), *world.joblets.values()]
        world.etcd.kill()
        for part in parts:
            part.kill()
        await asyncio.to_thread(world.etcd.start)
        for part in parts:
            part.start()
        tell(await Fault(world).followed(rates=rates))
        await world.ready()
        await promises.final(world, {order})
        promises.succeeded_once(world, {order})
        await promises.kept(world, running)
