"""F15: a joblet is killed, for a moment or for good; one is cut off and comes back after its work was given away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from controlplane.verify.records import Record
from controlplane.wire.v1 import cluster_pb2
from tests.robustness import promises
from tests.robustness.conftest import Tell
from tests.robustness.link import linked
from tests.robustness.load import an_order, load
from tests.robustness.patience import until
from tests.robustness.recovery import Fault
from tests.robustness.world import OWN, Plan, World, a_world

KEPT = ("P2", "P3", "P4", "P5", "P7", "P9")
LEASE, GRACE, KILL = 2, 2, 1
SETTINGS = cluster_pb2.Settings(joblet_lease=LEASE, heartbeat=0.5, target_grace=GRACE, kill_grace=KILL)
# Long the first time, at once the second.
ONLY_FIRST = ("sh", "-c", 'test "$CONTROLPLANE_ATTEMPT" != 1 || exec sleep 60')


async def submit(world: World, *, command: Sequence[str] = ("true",), unique: str = "", target: str = "") -> str:
    identity = world.client.mint.make()
    order = an_order(identity, command=command, unique=unique, real=True, target=target)
    await world.client.orders.submit(order)
    return identity


def runs(world: World, order: str) -> list[Record]:
    found = (record for record in promises.recorded(world) if record.order == order)
    return sorted(found, key=lambda record: record.monotonic)


async def until_started(world: World, order: str) -> Record:
    return (await until(lambda: runs(world, order), 10.0, "it was started"))[0]


async def test_a_killed_joblet_adopts_its_commands_when_it_is_started_again(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        order = await submit(world, command=("sleep", "2"), target="local-1")
        await until_started(world, order)
        fault = Fault(world)
        world.joblets["local-1"].kill()
        world.joblets["local-1"].start()
        tell(await fault.went_on(within=1.0, rates=rates))
        await promises.final(world, {order})
        assert [record.event for record in runs(world, order)] == ["started", "ended"], "it ran once"
        await promises.kept(world, running, *KEPT)
        promises.succeeded_once(world, {order})


async def test_what_a_dead_joblet_ran_is_given_to_another_after_the_grace_time(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path, Plan(settings=SETTINGS)) as world, load(world.endpoints) as running:
        rates = await running.warm()
        order = await submit(world, command=ONLY_FIRST)
        lost = (await until_started(world, order)).target
        fault = Fault(world)
        world.joblets[lost].kill()
        await promises.final(world, {order}, LEASE + GRACE + 5)
        took = asyncio.get_running_loop().time() - fault.moment
        tell(f"{await fault.went_on(within=1.0, rates=rates)}; ran elsewhere after {took:.1f} s")
        first, second = [record.target for record in runs(world, order) if record.event == "started"]
        assert first == lost != second
        await promises.kept(world, running, *KEPT)
        promises.succeeded_once(world, {order})


async def test_a_joblet_that_was_cut_off_finds_its_work_given_away_and_its_holders_dead(
    tmp_path: Path, tell: Tell
) -> None:
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(a_world(tmp_path, Plan(settings=SETTINGS, processes=1)))
        links = [await stack.enter_async_context(linked(endpoint)) for endpoint in world.endpoints]
        # The roomiest target is chosen first.
        far = world.add_process_target("far", [link.address for link in links], capacity="cpu=50,real=50")
        await world.witness.until(lambda: world.witness.targets.get("far") == "Ready", 10.0, "far is Ready")
        running = await stack.enter_async_context(load(world.endpoints))
        rates = await running.warm()
        plain, holder = [await submit(world, command=ONLY_FIRST, unique=unique) for unique in ("", OWN)]
        for order in (plain, holder):
            assert (await until_started(world, order)).target == "far"
        fault = Fault(world)
        for link in links:
            link.hold()
        waiting = await submit(world, unique=OWN)
        await promises.final(world, {plain, holder, waiting}, LEASE + GRACE + 6)
        told = await fault.went_on(within=1.0, rates=rates)
        tell(f"{told}; given to another after {asyncio.get_running_loop().time() - fault.moment:.1f} s")
        await fault.lasts(2 * LEASE)
        for link in links:
            link.release()
        await world.witness.until(lambda: world.witness.targets["far"] == "Ready", 10.0, "far is Ready again")
        await until(lambda: far.records().count(plain.encode()) == 2, 10.0, "far has stopped what is not its own")
        assert [record.target for record in runs(world, holder)] == ["far", "far", "local-1", "local-1"]
        await promises.kept(world, running, *KEPT)
        promises.succeeded_once(world, {plain, holder, waiting})
