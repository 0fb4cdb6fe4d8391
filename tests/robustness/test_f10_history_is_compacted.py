"""F10: compaction at head while the watch of a replica is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.client import Client
from tests.credentials import TOKEN
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.network import linked_to_etcd
from tests.robustness.recovery import Fault

KEPT = ("P2", "P3", "P7", "P8", "P9")


@pytest.mark.parametrize("who", ["leader", "standby"])
async def test_a_replica_that_missed_what_was_compacted_lists_again_within_five_seconds(
    tmp_path: Path, tell: Tell, who: str
) -> None:
    async with linked_to_etcd(tmp_path) as (world, links), load(world.endpoints) as running:
        rates = await running.warm()
        replica = world.leader if who == "leader" else world.standbys[0]
        link = links[replica.name]
        await link.refuse()
        missed = await world.witness.caught_up()
        await world.witness.until(lambda: world.witness.revision > missed + 50, "something happens meanwhile")
        compacted = await world.witness.caught_up()
        await world.etcdctl("compact", str(compacted))
        async with Client([replica.grpc], token=TOKEN) as client:
            assert (await client.cluster.status()).revision < compacted, "what it has to watch next is gone"
        link.listen()
        fault = Fault(world)
        await promises.cache_catches_up(world, replica, within=5.0)
        tell(f"{who}: {await fault.went_on(within=5.0, rates=rates)}")
        await world.ready()
        await promises.kept(world, running, *KEPT)
