"""Twenty deaths of leaders in a row, under load."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.recovery import Fault
from tests.robustness.world import a_world

DEATHS = 20


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_twenty_leaders_die_and_each_is_followed_within_a_second(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        times = []
        for _ in range(DEATHS):
            rates = await running.warm()
            fault, leader = Fault(world), world.leader
            leader.kill()
            told = await fault.followed(within=1.0, rates=rates)
            cycle = world.witness.cycle_after(fault.moment, above_epoch=fault.epoch)
            assert cycle is not None
            times.append(cycle.moment - fault.moment)
            leader.start()
            await world.ready()
        tell(f"{DEATHS} deaths: median {median(times):.3f} s, worst {max(times):.3f} s; last: {told}")
        await promises.kept(world, running)
