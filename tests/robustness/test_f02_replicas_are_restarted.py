"""F2: SIGTERM each replica in turn, and start it again."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.recovery import Fault
from tests.robustness.world import a_world

KEPT = ("P1", "P2", "P3", "P4", "P5", "P7", "P9")


async def test_a_rolling_restart_stops_nothing_for_longer_than_half_a_second(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        for replica in [world.leader, *world.standbys]:
            led = replica is world.leader
            fault = Fault(world)
            replica.signal(signal.SIGTERM)
            told = await (fault.followed if led else fault.went_on)(within=0.5, rates=rates)
            tell(f"{'leader' if led else 'standby'}: {told}")
            assert await replica.ended() == 0, "a replica that is asked to stop says so by its exit code"
            replica.start()
            await world.ready()
        await promises.kept(world, running, *KEPT)
