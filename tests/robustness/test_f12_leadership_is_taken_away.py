"""F12: the leader's lease is revoked, or its key deleted, with etcdctl."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.store import keys
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.recovery import Fault
from tests.robustness.world import World, a_world

KEPT = ("P1", "P2", "P3", "P4", "P9")


def leader_key(world: World) -> str:
    queue = [value for key, value in world.witness.values.items() if key.startswith(keys.CANDIDATES.prefix)]
    return min(queue, key=lambda value: value.create_revision).key


@pytest.mark.parametrize("taken", ["lease", "key"])
async def test_a_leader_without_its_key_is_followed_within_two_seconds(tmp_path: Path, tell: Tell, taken: str) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        key = leader_key(world)
        command = ("lease", "revoke", key.removeprefix(keys.CANDIDATES.prefix)) if taken == "lease" else ("del", key)
        fault = Fault(world)
        await world.etcdctl(*command)
        tell(f"{taken}: {await fault.followed(within=2.0, rates=rates)}")
        await world.ready()
        await promises.kept(world, running, *KEPT)
