"""F16: poison in etcd, put there with etcdctl: bad JSON, wrong types, 1.4 MiB, in every tree."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from controlplane.store import keys
from tests.robustness import promises
from tests.robustness.conftest import Tell
from tests.robustness.load import load
from tests.robustness.recovery import Fault
from tests.robustness.world import World, a_world

KEPT = ("P2", "P7", "P8")
ID = "7ZZZZZZZZZZZZZZZZZZZZZZZZ0"
# Names that sort behind all others and names that a careless reader takes for its own.
PLACES = (
    f"config/orders/{ID}",
    "config/orders/poison",
    "config/targets/poison",
    "config/packets/poison",
    f"desired/local-1/{ID}",
    "desired/poison/poison",
    f"inventory/local-1/{ID}",
    "inventory/poison/live",
    f"status/orders/{ID}",
    f"status/ended/{ID}/{ID}",
    "status/targets/poison",
    "claims/poison",
    "election/poison",
    "terms/99999999999999999999",
    "terms/poison",
    "cycles/poison/99999999999999999999",
    "no/such/tree",
)
POISON = {
    "bad JSON": b'{"kind":"Order","id":',
    "wrong types": b'{"kind":7,"id":["x"],"epoch":"first","phase":{},"priority":"high","tasks":3}',
    "another kind": b'{"kind":"Settings"}',
    "no object": b"[]",
    "not text": b"\xff\xfe\x00",
    "1.4 MiB": b'{"kind":"Order","id":"' + b"x" * (1_468_006 - 24) + b'"}',
}


async def put(world: World, key: str, value: bytes) -> None:
    process = await asyncio.create_subprocess_exec(
        "etcdctl",
        f"--endpoints={world.etcd.endpoint}",
        "put",
        keys.ROOT + key,
        env={**os.environ, "ETCDCTL_API": "3"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate(value)
    assert process.returncode == 0, said.decode()


@pytest.mark.parametrize("poison", POISON)
async def test_poison_in_every_tree_leaves_the_rest_alone(tmp_path: Path, tell: Tell, poison: str) -> None:
    """Before and after a change of leader: the next one finds the poison when it starts to lead."""
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        fault = Fault(world)
        for place in PLACES:
            await put(world, place, POISON[poison])
        told = await fault.went_on(within=1.0, rates=rates)
        assert world.witness.epoch == fault.epoch, "poison changes no leader"
        fault = Fault(world)
        world.leader.kill()
        tell(f"{poison}: {told}; after the death of the leader: {await fault.followed(within=1.0, rates=rates)}")
        world.replicas[fault.leader].start()
        await world.ready(beside=1)
        leader = await world.client.cluster.leader()
        assert leader.epoch == world.witness.epoch, "everybody knows who leads"
        await promises.kept(world, running, *KEPT)
        assert (await world.client.cluster.status()).poisoned, "a person can see that there is poison"
