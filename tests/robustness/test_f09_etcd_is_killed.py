"""F9: etcd is killed and started again on its data."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.robustness import promises
from tests.robustness.conftest import Tell
from tests.robustness.load import load
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
