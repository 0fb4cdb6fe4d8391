"""F9: etcd is killed and started again on its data; of three members one is killed, or so many that none can write."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.members import running_members
from tests.robustness.recovery import Fault
from tests.robustness.world import Plan, a_world

TTL = 3


async def test_everything_goes_on_within_two_ttl_after_etcd_is_back(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path, Plan(ttl=TTL)) as world, load(world.endpoints) as running:
        rates = await running.warm()
        world.etcd.kill()
        await asyncio.sleep(1.0)
        await asyncio.to_thread(world.etcd.start)
        tell(await Fault(world).went_on(within=2 * TTL, rates=rates))
        await world.ready()
        await promises.kept(world, running)


@pytest.mark.parametrize("which", ["leading", "following"])
async def test_a_member_of_three_is_killed_and_comes_back(tmp_path: Path, tell: Tell, which: str) -> None:
    with running_members(tmp_path / "etcd") as etcd:
        async with a_world(tmp_path, Plan(ttl=TTL), etcd=etcd) as world, load(world.endpoints) as running:
            rates = await running.warm()
            leading = await asyncio.to_thread(etcd.leading)
            others = [member for member in etcd.members if member is not leading]
            member = leading if which == "leading" else others[0]
            fault = Fault(world)
            member.kill()
            tell(f"{which}: {await fault.went_on(within=2 * TTL, rates=rates)}")
            await asyncio.to_thread(etcd.start, member)
            await world.ready()
            await promises.kept(world, running)


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.long)])
async def test_everything_goes_on_within_two_ttl_after_the_majority_is_back(
    tmp_path: Path, tell: Tell, seconds: int
) -> None:
    with running_members(tmp_path / "etcd") as etcd:
        async with a_world(tmp_path, Plan(ttl=TTL), etcd=etcd) as world, load(world.endpoints) as running:
            rates = await running.warm()
            # A minute of submits that nobody can answer is more than the machine of a test can keep open.
            running.pause()
            leading = await asyncio.to_thread(etcd.leading)
            lost = [leading, next(member for member in etcd.members if member is not leading)]
            for member in lost:
                member.kill()
            await asyncio.sleep(seconds)
            await asyncio.to_thread(etcd.start, *lost)
            running.resume()
            tell(f"after {seconds} s: {await Fault(world).went_on(within=2 * TTL, rates=rates)}")
            await world.ready()
            await promises.kept(world, running)
