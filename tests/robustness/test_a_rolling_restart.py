"""A rolling restart of all replicas and all joblets under load fails no order."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.robustness import promises
from tests.robustness.conftest import Tell
from tests.robustness.load import load
from tests.robustness.recovery import Fault
from tests.robustness.world import a_world


async def test_restarting_everything_one_after_the_other_fails_no_order(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        parts = [*world.joblets.values(), world.leader, *world.standbys]
        for part in parts:
            fault = Fault(world)
            part.signal(signal.SIGTERM)
            assert await part.ended() == 0, "who is asked to stop says so by its exit code"
            part.start()
            tell(f"{part.name}: {await fault.went_on(rates=rates)}")
            await world.ready()
        assert running.rates(fault.moment, fault.moment + 1).offered > 0, "the load went on to the end"
        await promises.kept(world, running)
