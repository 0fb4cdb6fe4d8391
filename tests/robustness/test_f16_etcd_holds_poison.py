"""F16: poison in etcd, put there with etcdctl: bad JSON, wrong types, 1.4 MiB, in every tree."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from controlplane.store import keys
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.recovery import Fault
from tests.robustness.world import World, a_world

KEPT = ("P2", "P7", "P8")
ID = "7ZZZZZZZZZZZZZZZZZZZZZZZZ"
# Names that sort behind all others, and names that a careless reader takes for its own; {n} tells the poisons apart.
PLACES = (
    f"config/orders/{ID}{{n}}",
    "config/targets/poison-{n}",
    "config/packets/poison-{n}",
    f"desired/local-1/{ID}{{n}}",
    "desired/poison-{n}/poison",
    f"inventory/local-1/{ID}{{n}}",
    "inventory/poison-{n}/live",
    f"status/orders/{ID}{{n}}",
    f"status/ended/{ID}{{n}}/{ID}{{n}}",
    "status/targets/poison-{n}",
    "claims/poison-{n}",
    "election/poison-{n}",
    "terms/9999999999999999999{n}",
    "cycles/poison/9999999999999999999{n}",
    "no/such/tree/{n}",
)
POISON = (
    b'{"kind":"Order","id":',
    b'{"kind":7,"id":["x"],"epoch":"first","phase":{},"priority":"high","tasks":3}',
    b'{"kind":"Settings"}',
    b"[]",
    b"\xff\xfe\x00",
    b'{"kind":"Order","id":"' + b"x" * (1_468_006 - 24) + b'"}',
)


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


async def test_poison_in_every_tree_leaves_the_rest_alone(tmp_path: Path, tell: Tell) -> None:
    """Before and after a change of leader: the next one finds the poison when it starts to lead."""
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        epoch = world.witness.epoch
        for number, poison in enumerate(POISON):
            await asyncio.gather(*(put(world, place.format(n=number), poison) for place in PLACES))
        tell(await Fault(world).went_on(rates=rates))
        assert world.witness.epoch == epoch, "poison changes no leader"
        fault = Fault(world)
        world.leader.kill()
        tell(f"after the death of the leader: {await fault.followed(within=1.0, rates=rates)}")
        world.replicas[fault.leader].start()
        await world.ready(beside=len(POISON))
        leader = await world.client.cluster.leader()
        assert leader.epoch == world.witness.epoch, "everybody knows who leads"
        await promises.kept(world, running, *KEPT)
        assert (await world.client.cluster.status()).poisoned, "a person can see that there is poison"
