"""F1: SIGKILL the leader."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.recovery import Fault
from tests.robustness.verifying import verify
from tests.robustness.world import a_world


async def test_a_killed_leader_is_followed_within_a_second_and_nothing_is_lost(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        fault = Fault(world)
        world.leader.kill()
        tell(await fault.followed(within=1.0, rates=rates))
        await asyncio.sleep(1.0)
        await promises.kept(world, running)
        world.replicas[fault.leader].start()
        await world.ready()
        code, said = await verify(world, running.acknowledged)
        assert code == 0
        assert all(said[promise]["ok"] for promise in ("P1", "P2", "P3", "P4", "P5", "P7", "P8", "P9")), said
