"""F7: the leader is cut off from the other replicas only, for good and on and off."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.network import linked_to_each_other
from tests.robustness.recovery import Fault
from tests.robustness.world import Plan

TTL = 3
KEPT = ("P1", "P2", "P3", "P4", "P5", "P7", "P9")


async def test_a_leader_that_nobody_hears_is_followed_at_most_once_in_three_ttl(tmp_path: Path, tell: Tell) -> None:
    async with linked_to_each_other(tmp_path, Plan(ttl=TTL)) as (world, links), load(world.endpoints) as running:
        rates = await running.warm()
        fault = Fault(world)
        for link in links.values():
            link.hold()
        tell(await fault.went_on(rates=rates))
        await fault.lasts(3 * TTL)
        changes = sum(term.moment > fault.moment for term in world.witness.terms)
        tell(f"changes of leader in three TTL: {changes}")
        assert changes <= 1
        await promises.kept(world, running, *KEPT)


async def test_a_pulse_that_comes_and_goes_changes_the_leader_at_most_once_in_three_ttl(
    tmp_path: Path, tell: Tell
) -> None:
    async with linked_to_each_other(tmp_path, Plan(ttl=TTL)) as (world, links), load(world.endpoints) as running:
        rates = await running.warm()
        fault = Fault(world)
        while asyncio.get_running_loop().time() < fault.moment + 3 * TTL:
            for link in links.values():
                await link.refuse()
            await asyncio.sleep(0.3)
            for link in links.values():
                link.listen()
            await asyncio.sleep(0.3)
        changes = sum(term.moment > fault.moment for term in world.witness.terms)
        tell(f"{await fault.went_on(rates=rates)}, changes of leader in three TTL: {changes}")
        assert changes <= 1
        await promises.kept(world, running, *KEPT)
