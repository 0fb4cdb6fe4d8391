"""A rolling restart of all replicas and all joblets under load fails no order."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from controlplane.store import keys
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.parts import Joblet, Part
from tests.robustness.recovery import Fault
from tests.robustness.world import World, a_world


def sessions_of(world: World, part: Part) -> dict[str, int]:
    """The sessions of a joblet's targets, and when each was written; none of a replica."""
    if not isinstance(part, Joblet):
        return {}
    front = f"{keys.ROOT}inventory/{part.target}"
    live = (key for key in world.witness.values if key.startswith(front) and key.endswith(f"/{keys.LIVE}"))
    return {key: world.witness.values[key].mod_revision for key in live}


def _renewed(world: World, sessions: Mapping[str, int]) -> bool:
    values = world.witness.values
    return all(key in values and values[key].mod_revision > before for key, before in sessions.items())


async def test_restarting_everything_one_after_the_other_fails_no_order(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        parts: list[Part] = [*world.joblets.values(), world.leader, *world.standbys]
        for part in parts:
            fault, sessions = Fault(world), sessions_of(world, part)
            part.signal(signal.SIGTERM)
            assert await part.ended() == 0, "who is asked to stop says so by its exit code"
            part.start()
            tell(f"{part.name}: {await fault.went_on(rates=rates)}")
            await world.witness.until(partial(_renewed, world, sessions), "its targets have new sessions")
            await world.ready()
        assert running.rates(fault.moment, fault.moment + 1).offered > 0, "the load went on to the end"
        await promises.kept(world, running)
