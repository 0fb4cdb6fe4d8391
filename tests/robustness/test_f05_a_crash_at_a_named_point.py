"""F5: a process dies at a named point: around the placement, around the start of a command, warming up, cleaning up."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import pytest

from controlplane.store import keys
from controlplane.wire.v1 import cluster_pb2
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import an_order, load
from tests.robustness.parts import Joblet, Replica
from tests.robustness.patience import PATIENCE_SECONDS, until
from tests.robustness.recovery import Fault
from tests.robustness.world import Plan, World, a_world

P = TypeVar("P", Replica, Joblet)

# Longer than an answer may take: the load repeats a submit, which an identity older than this would not survive.
CLEAN_UP_SECONDS = 20
# More attempts than one transaction of the clean-up deletes.
MANY = 120


def crashing(point: str, armed: Path) -> dict[str, str]:
    return {"CONTROLPLANE_FAILPOINTS": f"{point}=crash@{armed}"}


async def crashed(*parts: P) -> P:
    """The one that died."""
    found: P | None = await until(lambda: next((part for part in parts if not part.running), None), "one has died")
    assert found is not None
    return found


@pytest.mark.parametrize("point", ["scheduler.before-commit", "scheduler.after-commit"])
async def test_a_leader_that_dies_around_its_placements_is_followed_within_a_second(
    tmp_path: Path, tell: Tell, point: str
) -> None:
    armed = tmp_path / "armed"
    async with a_world(tmp_path, Plan(environment=crashing(point, armed))) as world, load(world.endpoints) as running:
        rates = await running.warm()
        fault = Fault(world)
        armed.touch()
        dead = await crashed(*world.replicas.values())
        assert dead.name == fault.leader
        tell(await fault.followed(within=1.0, rates=rates))
        dead.start()
        await world.ready()
        await promises.kept(world, running)


@pytest.mark.parametrize("point", ["joblet.before-start", "joblet.after-start"])
async def test_a_joblet_that_dies_around_the_start_of_a_command_starts_none_twice(
    tmp_path: Path, tell: Tell, point: str
) -> None:
    armed = tmp_path / "armed"
    plan = Plan(
        own_environment={"local-1": crashing(point, armed)},
        # It may take its time to come back.
        settings=cluster_pb2.Settings(target_grace=PATIENCE_SECONDS),
    )
    async with a_world(tmp_path, plan) as world, load(world.endpoints) as running:
        rates = await running.warm()
        fault = Fault(world)
        armed.touch()
        dead = await crashed(world.joblets["local-1"])
        tell(await fault.went_on(within=1.0, rates=rates))
        dead.start()
        await world.ready()
        await promises.kept(world, running)


async def test_a_new_leader_that_dies_before_its_first_cycle_is_followed_too(tmp_path: Path, tell: Tell) -> None:
    armed = tmp_path / "armed"
    plan = Plan(environment=crashing("replica.leading", armed))
    async with a_world(tmp_path, plan) as world, load(world.endpoints) as running:
        rates = await running.warm()
        fault, first = Fault(world), world.leader
        armed.touch()
        standbys = world.standbys
        first.kill()
        second = await crashed(*standbys)
        # Two leaders die, one after the other.
        tell(await fault.followed(within=2.0, rates=rates))
        assert world.witness.leader not in (first.name, second.name)
        first.start()
        second.start()
        await world.ready()
        await promises.kept(world, running)


async def test_a_replica_that_dies_while_it_warms_up_hurts_nobody(tmp_path: Path, tell: Tell) -> None:
    armed = tmp_path / "armed"
    plan = Plan(environment=crashing("replica.listed", armed))
    async with a_world(tmp_path, plan) as world, load(world.endpoints) as running:
        rates = await running.warm()
        fault, standby = Fault(world), world.standbys[0]
        standby.kill()
        armed.touch()
        standby.start()
        await crashed(standby)
        tell(await fault.went_on(within=1.0, rates=rates))
        standby.start()
        await world.ready()
        await promises.kept(world, running)
        assert [term.epoch for term in world.witness.terms] == [fault.epoch], "nobody else led"


@pytest.mark.parametrize("point", ["clean-up.before-delete", "clean-up.between", "clean-up.after-delete"])
async def test_a_leader_that_dies_while_it_cleans_up_leaves_it_to_the_next(
    tmp_path: Path, tell: Tell, point: str
) -> None:
    armed = tmp_path / "armed"
    settings = cluster_pb2.Settings(clean_up=CLEAN_UP_SECONDS)
    plan = Plan(environment=crashing(point, armed), settings=settings)
    async with a_world(tmp_path, plan) as world, load(world.endpoints) as running:
        large = await a_large_order(world)
        rates = await running.warm()
        fault = Fault(world)
        armed.touch()
        dead = await crashed(*world.replicas.values())
        fault.strikes()
        assert dead.name == fault.leader
        tell(await fault.followed(within=1.0, rates=rates))
        dead.start()
        await world.ready()
        values = world.witness.values
        left = (f"{keys.ENDED.prefix}{large}/", keys.order_status(large), keys.order(large))
        await world.witness.until(lambda: not any(key.startswith(left) for key in values), "all of it is gone")
        await promises.kept(world, running)


async def a_large_order(world: World) -> str:
    order = an_order(world.client.mint.make())
    order.packet.object.jobs[0].count = MANY
    await world.client.orders.submit(order)
    await promises.final(world, {order.id})
    return order.id
