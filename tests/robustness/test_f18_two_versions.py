"""F18: replicas and joblets of this version and of the one before it, on one etcd; failover each way.

And replicas that ask for credentials beside others that do not, while an open plane is closed.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from controlplane.client import Client
from controlplane.model.errors import Unauthenticated
from controlplane.store import keys
from controlplane.wire.v1 import common_pb2, orders_pb2
from tests.credentials import TOKEN
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import an_order, load
from tests.robustness.parts import ROOT
from tests.robustness.recovery import Fault, lead_with
from tests.robustness.world import Plan, World, a_world

# The last commit of the version before this one.
BEFORE = "1ceac88"
OLD, NEW = "replica-1", "replica-2"


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, timeout=60)


def why_not() -> str:
    """Why the version before cannot be had from here; empty when it can."""
    try:
        known = git("rev-parse", "--verify", "--quiet", f"{BEFORE}^{{commit}}").returncode == 0
    except FileNotFoundError:
        return "there is no git"
    return "" if known else f"this clone does not hold commit {BEFORE}: it has no history"


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The code of the version before."""
    folder = tmp_path / "before"
    folder.mkdir()
    archive = git("archive", "--format=tar", BEFORE)
    assert archive.returncode == 0, archive.stderr
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True, timeout=60)
    return folder


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
async def test_leaders_of_two_versions_follow_each_other_within_a_second(
    tmp_path: Path, before: Path, tell: Tell
) -> None:
    plan = Plan(replicas=2, roots={OLD: before, "local-1": before})
    async with a_world(tmp_path, plan) as world, load(world.endpoints) as running:
        versions_differ(world)
        order = await an_order_with_more_in_it(world)
        for name in (OLD, NEW):
            await lead_with(world, {name})
            rates = await running.warm()
            fault = Fault(world)
            world.leader.kill()
            tell(f"{name} killed: {await fault.followed(within=1.0, rates=rates)}")
            assert world.witness.leader != name
            world.replicas[name].start()
            await world.ready()
            await rewrite(world, order, name)
        await promises.kept(world, running)


def versions_differ(world: World) -> None:
    """What is started from that folder is what is in it: it does not know how to say what this version says."""
    assert not (world.plan.roots[OLD] / "controlplane" / "model" / "schedule.py").exists()
    assert "schedule" in orders_pb2.Order.DESCRIPTOR.fields_by_name


async def an_order_with_more_in_it(world: World) -> str:
    """One that waits, with a field that neither version knows."""
    order = an_order(world.client.mint.make())
    order.not_before = "2090-01-01T00:00:00Z"
    await world.client.orders.submit(order)
    await world.witness.caught_up()
    key = keys.order(order.id)
    stored = msgspec.json.decode(world.witness.values[key].value)
    await world.etcdctl("put", key, msgspec.json.encode({**stored, "later": {"a": [1]}}).decode())
    return order.id


async def rewrite(world: World, order: str, name: str) -> None:
    """Changed through either version, it keeps what that version does not know."""
    async with Client([world.replicas[name].grpc], token=TOKEN) as client:
        for change in (client.orders.pause, client.orders.resume):
            await change(order)
            await world.witness.caught_up()
            stored = msgspec.json.decode(world.witness.values[keys.order(order)].value)
            assert stored["later"] == {"a": [1]}


async def test_an_open_plane_is_closed_replica_by_replica_under_load(tmp_path: Path, tell: Tell) -> None:
    """Joblets and clients have tokens before the first replica asks for them; then nothing stands still."""
    async with a_world(tmp_path, Plan(insecure=True)) as world, load(world.endpoints) as running:
        for name in world.replicas:
            assert await is_open(world, name)
            rates = await running.warm()
            leads = name == world.witness.leader
            fault = Fault(world)
            world.replicas[name].signal(signal.SIGTERM)
            assert await world.replicas[name].ended() == 0
            if leads:
                tell(f"{name} closed: {await fault.followed(within=1.0, rates=rates)}")
            world.close_access(name)
            world.replicas[name].start()
            await world.ready()
            assert not await is_open(world, name)
        await promises.kept(world, running)
        assert all(phase == "Ready" for phase in world.witness.targets.values())


async def is_open(world: World, name: str) -> bool:
    """Whether the replica answers a caller without credentials."""
    async with Client([world.replicas[name].grpc]) as client:
        try:
            await client.orders.page(common_pb2.ListRequest(limit=1))
        except Unauthenticated:
            return False
        return True
