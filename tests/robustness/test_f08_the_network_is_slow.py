"""F8: everything between replicas and etcd takes 75 ms, give or take 50, each way; or stands still for a second."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.network import linked_to_etcd
from tests.robustness.recovery import Fault
from tests.robustness.world import Plan

TTL = 5
DELAY_SECONDS, GIVE_OR_TAKE = 0.075, 0.050
SLOW_SECONDS = 10.0
STALLS = 4


async def test_nothing_is_lost_when_etcd_is_far_away(tmp_path: Path, tell: Tell) -> None:
    async with linked_to_etcd(tmp_path, Plan(ttl=TTL)) as (world, links), load(world.endpoints) as running:
        await running.warm()
        for link in links.values():
            for way in (link.up, link.down):
                way.delay(DELAY_SECONDS, GIVE_OR_TAKE)
        # The load is reached on the slow network too.
        rates = await running.warm(SLOW_SECONDS)
        tell(await Fault(world).went_on(rates=rates))
        await promises.kept(world, running)
        tell(f"terms: {len(world.witness.terms)}")


async def test_a_killed_leader_is_followed_when_etcd_is_far_away(tmp_path: Path, tell: Tell) -> None:
    async with linked_to_etcd(tmp_path, Plan(ttl=TTL)) as (world, links), load(world.endpoints) as running:
        for link in links.values():
            for way in (link.up, link.down):
                way.delay(DELAY_SECONDS, GIVE_OR_TAKE)
        rates = await running.warm()
        fault = Fault(world)
        world.leader.kill()
        tell(await fault.followed(rates=rates))
        world.replicas[fault.leader].start()
        await world.ready()
        await promises.kept(world, running)


async def test_nothing_is_lost_when_the_way_to_etcd_stalls_for_a_second(tmp_path: Path, tell: Tell) -> None:
    async with linked_to_etcd(tmp_path, Plan(ttl=TTL)) as (world, links), load(world.endpoints) as running:
        rates = await running.warm()
        fault = Fault(world)
        for stall in range(STALLS):
            # All of them at once, and then each on its own: the leader among them.
            some = list(links.values()) if stall == 0 else [list(links.values())[stall - 1]]
            for link in some:
                link.hold()
            await asyncio.sleep(1.0)
            for link in some:
                link.release()
            await asyncio.sleep(0.5)
        tell(await Fault(world).went_on(rates=rates))
        await promises.kept(world, running)
        assert world.witness.epoch == fault.epoch, "a second is no reason for another leader"
