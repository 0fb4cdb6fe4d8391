"""F6: the leader is cut off from etcd, in one direction or the other, and finds it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.network import linked_to_etcd
from tests.robustness.recovery import Fault
from tests.robustness.world import Plan

TTL = 3


@pytest.mark.parametrize("lost", ["what the leader says", "what etcd answers", "both"])
async def test_a_leader_without_etcd_is_followed_within_two_ttl(tmp_path: Path, tell: Tell, lost: str) -> None:
    async with linked_to_etcd(tmp_path, Plan(ttl=TTL)) as (world, links), load(world.endpoints) as running:
        rates = await running.warm()
        fault, link = Fault(world), links[world.leader.name]
        ways = {"what the leader says": [link.up], "what etcd answers": [link.down], "both": [link.up, link.down]}
        link.hold(*ways[lost])
        tell(f"{lost}: {await fault.followed(within=2 * TTL, rates=rates)}")
        link.release()
        await world.ready()
        await promises.kept(world, running)
