"""F20: a backup under load, time goes on, everything is stopped, and an empty etcd is made out of the backup."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controlplane.model.cluster import ClusterStatus
from controlplane.store import codec, keys
from controlplane.wire.v1 import orders_pb2
from tests.etcd import Etcd
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import Load, an_order, load
from tests.robustness.parts import ROOT
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.witness import Witness
from tests.robustness.world import OWN, Plan, World, a_world

# Every process is started at once, and nobody promises how long that takes.
LONG_SECONDS = 3 * PATIENCE_SECONDS
KEPT = ("P1", "P3", "P4", "P7", "P8")
# Its first attempt would run for ever, any other ends at once.
ONCE = ("sh", "-c", "test $CONTROLPLANE_ATTEMPT -gt 1 || exec sleep 600")


async def cpctl(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "controlplane.cli.cpctl", *arguments, cwd=ROOT,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def hold_on(world: World) -> list[str]:
    """Two orders that run for as long as nobody stops them, one with a unique resource."""
    orders = [
        an_order(world.client.mint.make(), command=ONCE, real=True, unique=unique, target=target)
        for unique, target in (("", "local-1"), (OWN, "local-2"))
    ]
    for order in orders:
        await world.client.orders.submit(order)
    running = {order.id for order in orders}
    await world.witness.until(
        lambda: running <= {order for order, phase in world.witness.phases.items() if phase == "Running"}, "they run"
    )
    return sorted(running)


async def go_on(world: World, running: Load, revision: int) -> list[orders_pb2.Order]:
    """Until much happened that the backup does not know; some orders that it does not know, and that ran."""
    after = [ask for ask in running.asks.values() if ask.revision > revision]
    while sum(world.witness.phases.get(ask.order.id) == "Succeeded" for ask in after) < 100:
        await asyncio.sleep(0.1)
        after = [ask for ask in running.asks.values() if ask.revision > revision]
    return [ask.order for ask in after if world.witness.phases.get(ask.order.id) == "Succeeded"][:40]


@asynccontextmanager
async def another_world(folder: Path, etcd: Etcd, plan: Plan) -> AsyncIterator[World]:
    """On the restored etcd, with the folders of the joblets of before; nothing runs yet."""
    etcd.start()
    witness = Witness(etcd.endpoint)
    try:
        async with witness.watching():
            world = World(folder, etcd, plan, witness)
            try:
                yield world
            finally:
                await world.close()
    finally:
        etcd.kill()


def cluster(world: World) -> ClusterStatus:
    return codec.decode(world.witness.values[keys.CLUSTER_STATUS].value, ClusterStatus)


def cluster_is_noted(world: World) -> bool:
    return keys.CLUSTER_STATUS in world.witness.values and cluster(world).restored == 1


def placed_since(world: World, revision: int) -> int:
    """How many fulfilments were placed after that revision."""
    front = f"{keys.ROOT}desired/"
    return sum(
        change.revision > revision and change.value is not None and change.value.create_revision == change.revision
        for change in world.witness.changes
        if change.key.startswith(front)
    )


async def restored(tmp_path: Path, copy: Path, plan: Plan) -> Etcd:
    (tmp_path / "etcd-2").mkdir()
    etcd = Etcd(tmp_path / "etcd-2")
    await cpctl("restore", str(copy), "--etcd-dir", str(etcd.data), "--peer", etcd.peer)
    return etcd


@pytest.mark.timeout(600)
async def test_a_restored_control_plane_repeats_nothing_and_goes_on(tmp_path: Path, tell: Tell) -> None:
    plan, copy = Plan(), tmp_path / "copy"
    async with a_world(tmp_path, plan) as world, load(world.endpoints) as running:
        rates = await running.warm()
        held = await hold_on(world)
        await cpctl("backup", str(copy), "--etcd", world.etcd.endpoint)
        revision = await world.witness.caught_up()
        lost = await go_on(world, running, revision)
        known = {ask.order.id for ask in running.asks.values() if 0 < ask.revision < revision}
        for part in (*world.joblets.values(), *world.replicas.values()):
            part.kill()
    etcd = await restored(tmp_path, copy, plan)
    async with another_world(tmp_path, etcd, plan) as world:
        await check_the_waiting(world)
        world.add_simulated_targets("sim", plan.simulated)
        await world.witness.until(lambda: not cluster(world).restoring, "the restore is over", seconds=LONG_SECONDS)
        await world.ready()
        tell(f"reached {rates.reached:.1f}/s before, attempts go on above {cluster(world).attempt_floor}")
        for order in lost:
            await world.client.orders.submit(order)
        async with load(world.endpoints) as again:
            await again.warm()
            known = {order for order in known if keys.order(order) in world.witness.values}
            everything = {*known, *held, *(order.id for order in lost)}
            await promises.final(world, everything)
            phases = {order: world.witness.phases[order] for order in everything}
            assert set(phases.values()) == {"Succeeded"}, phases
            await promises.kept(world, again, *KEPT)


async def check_the_waiting(world: World) -> None:
    """Nothing is placed while the joblet of the simulated targets has not come back."""
    for replica in world.replicas.values():
        replica.start()
    for number in range(1, world.plan.processes + 1):
        world.add_process_target(f"local-{number}")
    await world.witness.until(lambda: cluster_is_noted(world), "a leader takes note", seconds=LONG_SECONDS)
    noted = world.witness.values[keys.CLUSTER_STATUS].mod_revision
    async with asyncio.timeout(LONG_SECONDS):
        while list((await world.client.cluster.status()).restoring.waiting_for) != ["sim-0", "sim-1", "sim-2", "sim-3"]:
            await asyncio.sleep(0.05)
    await world.client.orders.submit(an_order(world.client.mint.make(), real=True))
    await asyncio.sleep(1.0)
    assert placed_since(world, noted) == 0


@pytest.mark.long
@pytest.mark.parametrize("_time", range(20))
async def test_again_and_again(tmp_path: Path, tell: Tell, _time: int) -> None:
    await test_a_restored_control_plane_repeats_nothing_and_goes_on(tmp_path, tell)
