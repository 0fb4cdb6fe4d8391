"""F4: the event loop of the leader is blocked for three TTL, in the middle of a cycle."""

from __future__ import annotations

from pathlib import Path

from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.recovery import Fault
from tests.robustness.world import Plan, a_world

TTL = 4
KEPT = ("P1", "P2", "P3", "P4", "P5", "P7", "P9")


async def test_a_leader_whose_loop_hangs_is_followed_within_three_seconds(tmp_path: Path, tell: Tell) -> None:
    armed = tmp_path / "block"
    environment = {"CONTROLPLANE_FAILPOINTS": f"scheduler.before-commit=block:{3 * TTL}@{armed}"}
    async with a_world(tmp_path, Plan(ttl=TTL, environment=environment)) as world, load(world.endpoints) as running:
        rates = await running.warm()
        fault = Fault(world)
        armed.touch()
        tell(await fault.followed(within=3.0, rates=rates))
        assert not armed.exists(), "the leader reached the point at which it hangs"
        await fault.lasts(3 * TTL)
        await world.ready()
        await promises.kept(world, running, *KEPT)
