"""F3: SIGSTOP the leader for three TTL, then SIGCONT; the same for a standby."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.recovery import Fault
from tests.robustness.world import Plan, a_world

# So that the lease lives longer than the silence of the pulse, as it does by default.
TTL = 4


async def test_a_stopped_leader_is_followed_within_three_seconds_and_harms_nothing_when_it_wakes(
    tmp_path: Path, tell: Tell
) -> None:
    async with a_world(tmp_path, Plan(ttl=TTL)) as world, load(world.endpoints) as running:
        rates = await running.warm()
        fault, stopped = Fault(world), world.leader
        stopped.signal(signal.SIGSTOP)
        tell(await fault.followed(within=3.0, rates=rates))
        await fault.lasts(3 * TTL)
        stopped.signal(signal.SIGCONT)
        await world.ready()
        await promises.kept(world, running)


async def test_a_stopped_standby_changes_no_leader(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path, Plan(ttl=TTL)) as world, load(world.endpoints) as running:
        rates = await running.warm()
        fault, stopped = Fault(world), world.standbys[0]
        stopped.signal(signal.SIGSTOP)
        tell(await fault.went_on(within=3.0, rates=rates))
        await fault.lasts(3 * TTL)
        stopped.signal(signal.SIGCONT)
        await world.ready()
        await promises.kept(world, running)
        assert [term.epoch for term in world.witness.terms] == [fault.epoch], "nobody else led"
