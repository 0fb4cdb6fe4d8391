"""F21: a member of etcd is cut off from its peers, but not from the replica that follows etcd through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.model.errors import ControlPlaneError
from tests.credentials import TOKEN
from tests.etcd import Etcd
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import an_order, load
from tests.robustness.parts import Replica
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.peers import Peers, linked_peers
from tests.robustness.recovery import Fault, lead_with
from tests.robustness.world import Plan, World, a_world, names

TTL = 3
# The life of a joblet's session without a renewal: what is placed on a target goes on within it.
LEASE = 6
ON_MEMBER = "replica-1"
# One question, asked of one replica.
ONCE = CallTimeouts(attempt_seconds=1.0, total_seconds=1.0)


@dataclass
class Scene:
    """The replica that follows etcd through the member that will be cut off first asks that member."""

    world: World
    peers: Peers
    member: Etcd

    @property
    def replica(self) -> Replica:
        return self.world.replicas[ON_MEMBER]

    async def cut_off(self) -> Fault:
        fault = Fault(self.world)
        await self.peers.isolate(self.member)
        fault.strikes()
        return fault

    async def catches_up(self) -> str:
        """The replica shows an order that etcd took after the fault; what it said of itself meanwhile."""
        loop = asyncio.get_running_loop()
        order = an_order(self.world.client.mint.make())
        await self.world.client.orders.submit(order)
        began = loop.time()
        unready = 0.0
        async with Client([self.replica.grpc], token=TOKEN, timeouts=ONCE) as client:
            while not await shows(client, order.id):
                unready = unready or (loop.time() - began if not await is_ready(self.replica) else 0.0)
                took = loop.time() - began
                assert unready or took < LEASE, f"for {took:.1f} s ready, and without what etcd took meanwhile"
                assert took < PATIENCE_SECONDS, "the replica never showed what etcd took"
        return f"showed a new order after {loop.time() - began:.2f} s, not ready after {unready:.2f} s (0: was ready)"


async def is_ready(replica: Replica) -> bool:
    async with aiohttp.ClientSession() as session, session.get(f"http://{replica.http}/readyz") as answer:
        return answer.status == 200


async def shows(client: Client, order: str) -> bool:
    try:
        return bool((await client.orders.get(order)).id == order)
    except ControlPlaneError:
        await asyncio.sleep(0.05)
        return False


@asynccontextmanager
async def a_scene(folder: Path, *, replicas: int = 3, which: str, only: bool = False) -> AsyncIterator[Scene]:
    """`which` member is to be cut off: the one that leads etcd, or another. `only`: the replica knows no other."""
    async with linked_peers(folder / "etcd") as peers:
        leading = await asyncio.to_thread(peers.etcd.leading)
        others = [member for member in peers.etcd.members if member is not leading]
        member = peers.choose(leading if which == "leading" else others[0])
        way = member.endpoint if only else f"{member.endpoint},{peers.etcd.endpoint}"
        plan = Plan(replicas=replicas, ttl=TTL, ways={ON_MEMBER: way})
        async with a_world(folder, plan, etcd=peers.etcd) as world:
            yield Scene(world, peers, member)


async def work_goes_on(world: World, joblet: str, *, within: float) -> str:
    """A command that is ordered now runs on that target."""
    loop = asyncio.get_running_loop()
    order = an_order(world.client.mint.make(), command=("true",), real=True, target=joblet)
    await world.client.orders.submit(order)
    began = loop.time()
    try:
        await world.witness.until(
            lambda: world.witness.phases.get(order.id) == "Succeeded", f"{joblet} does its work", seconds=within
        )
    except AssertionError as error:
        shown = await world.client.orders.get(order.id)
        where = [key for key in world.witness.values if order.id in key]
        head = await world.witness.store.revision()
        seen = f"the witness is at {world.witness.revision} of {head}"
        raise AssertionError(f"{error}: {shown.status} {where}, {seen}") from None
    return f"{joblet} worked after {loop.time() - began:.2f} s"


@pytest.mark.parametrize("which", ["leading", "following"])
async def test_a_standby_on_the_member_moves_on_within_a_lease(tmp_path: Path, tell: Tell, which: str) -> None:
    async with a_scene(tmp_path, which=which) as scene, load(scene.world.endpoints) as running:
        world = scene.world
        await lead_with(world, set(names(3)) - {ON_MEMBER})
        joblet = world.add_process_target("on-member", [scene.replica.grpc, *world.endpoints])
        await world.witness.until(lambda: world.witness.targets.get(joblet.target) == "Ready", "the target is Ready")
        rates = await running.warm()
        fault = await scene.cut_off()
        told = await asyncio.gather(
            scene.catches_up(),
            work_goes_on(world, joblet.target, within=2 * LEASE),
            fault.went_on(within=2 * TTL, rates=rates),
        )
        tell(f"{which}: {'; '.join(told)}")
        scene.peers.heal()
        await world.ready()
        await promises.kept(world, running)


async def test_a_leader_on_the_member_goes_on_or_is_followed(tmp_path: Path, tell: Tell) -> None:
    async with a_scene(tmp_path, which="following") as scene, load(scene.world.endpoints) as running:
        await lead_with(scene.world, {ON_MEMBER})
        rates = await running.warm()
        fault = await scene.cut_off()
        told = await asyncio.gather(scene.catches_up(), fault.went_on(within=3 * TTL, rates=rates))
        tell("; ".join(told))
        scene.peers.heal()
        await scene.world.ready()
        await promises.kept(scene.world, running)


async def test_a_single_replica_goes_on_through_another_member(tmp_path: Path, tell: Tell) -> None:
    async with a_scene(tmp_path, replicas=1, which="following") as scene, load(scene.world.endpoints) as running:
        rates = await running.warm()
        fault = await scene.cut_off()
        tell(await fault.went_on(within=3 * TTL, rates=rates))
        scene.peers.heal()
        await scene.world.ready()
        await promises.kept(scene.world, running)


async def test_a_replica_that_knows_no_other_member_is_not_ready_and_its_joblets_leave(
    tmp_path: Path, tell: Tell
) -> None:
    async with a_scene(tmp_path, which="following", only=True) as scene, load(scene.world.endpoints) as running:
        world = scene.world
        await lead_with(world, set(names(3)) - {ON_MEMBER})
        joblet = world.add_process_target("on-member", [scene.replica.grpc, *world.endpoints])
        await world.witness.until(lambda: world.witness.targets.get(joblet.target) == "Ready", "the target is Ready")
        await running.warm()
        await scene.cut_off()
        began = asyncio.get_running_loop().time()
        told = await work_goes_on(world, joblet.target, within=3 * LEASE)
        while await is_ready(scene.replica):
            assert asyncio.get_running_loop().time() - began < LEASE + 1, "it says that it is ready"
            await asyncio.sleep(0.05)
        tell(told)
        scene.peers.heal()
        while not await is_ready(scene.replica):
            assert asyncio.get_running_loop().time() - began < PATIENCE_SECONDS, "it does not come back"
            await asyncio.sleep(0.05)
        await promises.kept(world, running)
