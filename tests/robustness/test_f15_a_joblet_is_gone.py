"""F15: a joblet is killed, for a moment or for good; one is cut off and comes back after its work was given away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from controlplane.model.fulfilment import Ended
from controlplane.store import codec, keys
from controlplane.verify.joblet_records import JobletRecord
from controlplane.wire.v1 import cluster_pb2
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.link import linked
from tests.robustness.load import an_order, load
from tests.robustness.patience import PATIENCE_SECONDS, until
from tests.robustness.recovery import Fault
from tests.robustness.world import OWN, Plan, World, a_world

KEPT = ("P2", "P3", "P4", "P5", "P7", "P9")
LEASE, GRACE, KILL = 2, 2, 1
SETTINGS = cluster_pb2.Settings(joblet_lease=LEASE, heartbeat=0.5, target_grace=GRACE, kill_grace=KILL)
# For a joblet that may take its time to come back.
PATIENT = cluster_pb2.Settings(target_grace=PATIENCE_SECONDS)
# Beside lease and grace time: etcd looks for leases that are over twice a second, and the leader has other work too.
LATE_SECONDS = 3.0
# Long the first time, at once the second.
ONLY_FIRST = ("sh", "-c", 'test "$CONTROLPLANE_ATTEMPT" != 1 || exec sleep 60')


async def submit(
    world: World, *, command: Sequence[str] = ("true",), unique: str = "", target: str = "", prefer: str = ""
) -> str:
    identity = world.client.mint.make()
    # The load keeps the targets busy; what the test looks at does not queue behind it.
    order = an_order(identity, command=command, unique=unique, real=True, target=target, priority=100, prefer=prefer)
    await world.client.orders.submit(order)
    return identity


def runs(world: World, order: str) -> list[JobletRecord]:
    found = (record for record in promises.recorded(world) if record.order == order)
    return sorted(found, key=lambda record: record.monotonic)


async def until_started(world: World, order: str) -> JobletRecord:
    return (await until(lambda: runs(world, order), "it was started"))[0]


async def until_given_back(world: World, fault: Fault, *started: JobletRecord) -> str:
    """These runs ended with their target, within the session's lease and the grace time."""
    values, ends = world.witness.values, [keys.ended(run.order, run.fulfilment) for run in started]
    await world.witness.until(lambda: all(key in values for key in ends), "the attempts have ended")
    took, bound = asyncio.get_running_loop().time() - fault.moment, LEASE + GRACE + LATE_SECONDS
    for key in ends:
        assert [task.reason for task in codec.decode(values[key].value, Ended).tasks] == ["TargetLost"]
    assert took <= bound, f"given back after {took:.1f} s, which is above {bound} s"
    return f"given back after {took:.1f} s (bound {bound:g} s)"


async def test_a_killed_joblet_adopts_its_commands_when_it_is_started_again(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path, Plan(settings=PATIENT)) as world, load(world.endpoints) as running:
        rates = await running.warm()
        order = await submit(world, command=("sleep", "2"), target="local-1")
        await until_started(world, order)
        fault = Fault(world)
        world.joblets["local-1"].kill()
        world.joblets["local-1"].start()
        tell(await fault.went_on(rates=rates))
        await promises.final(world, {order})
        assert [record.event for record in runs(world, order)] == ["started", "ended"], "it ran once"
        await promises.kept(world, running, *KEPT)
        promises.succeeded_once(world, {order})


async def test_what_a_dead_joblet_ran_is_given_to_another_after_the_grace_time(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path, Plan(settings=SETTINGS)) as world, load(world.endpoints) as running:
        rates = await running.warm()
        order = await submit(world, command=ONLY_FIRST)
        run = await until_started(world, order)
        fault = Fault(world)
        world.joblets[run.target].kill()
        given = await until_given_back(world, fault, run)
        tell(f"{await fault.went_on(rates=rates)}; {given}")
        await promises.final(world, {order})
        first, second = [record.target for record in runs(world, order) if record.event == "started"]
        assert first == run.target != second
        await promises.kept(world, running, *KEPT)
        promises.succeeded_once(world, {order})


async def test_a_joblet_that_was_cut_off_finds_its_work_given_away_and_its_holders_dead(
    tmp_path: Path, tell: Tell
) -> None:
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(a_world(tmp_path, Plan(settings=SETTINGS, processes=1)))
        links = [await stack.enter_async_context(linked(endpoint)) for endpoint in world.endpoints]
        far = world.add_process_target("far", [link.address for link in links], capacity="cpu=50,real=50")
        await world.witness.until(lambda: world.witness.targets.get("far") == "Ready", "far is Ready")
        running = await stack.enter_async_context(load(world.endpoints))
        rates = await running.warm()
        plain, holder = [await submit(world, command=ONLY_FIRST, unique=unique, prefer="far") for unique in ("", OWN)]
        started = [await until_started(world, order) for order in (plain, holder)]
        assert [run.target for run in started] == ["far", "far"]
        fault = Fault(world)
        for link in links:
            link.hold()
        waiting = await submit(world, unique=OWN)
        given = await until_given_back(world, fault, *started)
        tell(f"{await fault.went_on(rates=rates)}; {given}")
        await promises.final(world, {plain, holder, waiting})
        await fault.lasts(2 * LEASE)
        for link in links:
            link.release()
        await world.witness.until(lambda: world.witness.targets["far"] == "Ready", "far is Ready again")
        await until(lambda: far.records().count(plain.encode()) == 2, "far has stopped what is not its own")
        assert [record.target for record in runs(world, holder)] == ["far", "far", "local-1", "local-1"]
        await promises.kept(world, running, *KEPT)
        promises.succeeded_once(world, {plain, holder, waiting})
