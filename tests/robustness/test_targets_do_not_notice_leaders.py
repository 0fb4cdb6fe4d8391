"""The death of leaders, one after the other, makes no healthy target look dead."""

from __future__ import annotations

from pathlib import Path

from controlplane.model.target import TargetStatus
from controlplane.store import codec, keys
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.recovery import Fault
from tests.robustness.world import World, a_world

DEATHS = 4


def recorded(world: World, since: int) -> dict[str, set[str]]:
    """The phases of each target that were recorded from that revision on."""
    found: dict[str, set[str]] = {}
    for change in world.witness.changes:
        tree, parts = keys.parse(change.key) or ("", ())
        if tree == "status/targets" and change.revision > since:
            phase = codec.decode(change.value.value, TargetStatus).phase if change.value is not None else "away"
            found.setdefault(parts[0], set()).add(phase)
    return found


async def test_no_target_leaves_ready_while_leaders_die(tmp_path: Path, tell: Tell) -> None:
    """Each leader takes the streams of a third of the joblets along; the others must take them over in time."""
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        since = world.witness.revision
        for _ in range(DEATHS):
            rates = await running.warm()
            fault, leader = Fault(world), world.leader
            leader.kill()
            told = await fault.followed(rates=rates)
            leader.start()
            await world.ready()
        await promises.kept(world, running)
        phases = recorded(world, since)
        assert len(phases) == world.plan.processes + world.plan.simulated
        assert set().union(*phases.values()) == {"Ready"}, phases
        gone = [change.key for change in world.witness.changes if change.key.endswith("/live") and not change.value]
        assert not gone, "a session ended"
        tell(f"{DEATHS} deaths, {len(phases)} targets Ready throughout; last: {told}")
