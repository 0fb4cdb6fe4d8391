"""F11: etcd is out of space, then the leader is killed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.model.errors import LimitExceeded, Unavailable
from controlplane.store import keys
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, delete, put
from controlplane.wire.v1 import orders_pb2
from tests.credentials import TOKEN
from tests.etcd import running_etcd
from tests.fault_reports import Tell
from tests.prefixes import delete_prefix
from tests.robustness import promises
from tests.robustness.load import an_order, load
from tests.robustness.parts import Replica
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.recovery import Fault
from tests.robustness.world import OWN, Plan, World, a_world, names

TTL = 3
QUOTA = 64 << 20
JUNK = "/junk/"
# Nobody promises how fast a full etcd answers.
PATIENT = CallTimeouts(attempt_seconds=PATIENCE_SECONDS, total_seconds=PATIENCE_SECONDS)
KEPT = ("P1", "P2", "P3", "P8")


async def fill(store: Store) -> None:
    """Until etcd takes no more; big pieces first, then what is left."""
    for size in (1 << 19, 1 << 14):
        with suppress(Unavailable):
            for number in range(2 * QUOTA // size):
                await store.commit(Item(then=(put(f"{JUNK}{size}-{number}", b"x" * size),)))
            raise AssertionError("etcd has no quota")


async def make_room(world: World) -> None:
    """What a person does: less data, no history of it, a smaller file, and the word that all is well.

    The witness must have seen all that is compacted: it hears of the deletion by a resource that nobody uses.
    """
    unused = keys.config("resources", OWN)
    await world.witness.store.commit(Item(then=(delete_prefix(JUNK), delete(unused))))
    await world.etcdctl("compact", "--physical", str(await world.witness.caught_up()))
    await world.etcdctl("defrag")
    await world.etcdctl("alarm", "disarm")


async def said(replica: Replica, order: orders_pb2.Order) -> str:
    """Why the replica does not take the order, once it has noticed, which it does by itself."""
    async with Client([replica.grpc], token=TOKEN, timeouts=PATIENT) as client:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await client.cluster.status()).etcd.alarm:
                await asyncio.sleep(0.05)
        with pytest.raises(LimitExceeded) as refused:
            await client.orders.submit(order)
        return str(refused.value)


async def readable(replica: Replica, known: str) -> None:
    async with Client([replica.grpc], token=TOKEN, timeouts=PATIENT) as client:
        status = await client.cluster.status()
        assert (status.etcd.level, status.etcd.alarm) == ("Full", True)
        assert (await client.orders.get(known)).id == known


async def test_reads_go_on_admission_says_why_and_somebody_leads(tmp_path: Path, tell: Tell) -> None:
    flags = {name: ("--etcd-quota", str(QUOTA)) for name in names(3)}
    with running_etcd(tmp_path / "etcd", [f"--quota-backend-bytes={QUOTA}"]) as etcd:
        async with a_world(tmp_path, Plan(ttl=TTL, flags=flags), etcd=etcd) as world, load(world.endpoints) as running:
            rates = await running.warm()
            known = next(iter(running.acknowledged))
            late = an_order(world.client.mint.make(), command=("sleep", "3"), real=True)
            await world.client.orders.submit(late)
            await fill(world.witness.store)
            fault = Fault(world)
            world.leader.kill()
            tell(await fault.followed(within=TTL + 1, rates=rates))
            # Who is refused asks again: more of them would only be a storm.
            running.pause()
            for replica in [one for one in world.replicas.values() if one.running]:
                assert "etcd is out of space" in await said(replica, an_order(world.client.mint.make()))
                await readable(replica, known)
            await world.witness.until(lambda: world.witness.phases.get(late.id) == "Succeeded", "what ran is ended")
            world.replicas[fault.leader].start()
            await make_room(world)
            freed = Fault(world)
            running.resume()
            tell(f"after there is room: {await freed.went_on(rates=rates)}")
            await world.ready()
            await promises.kept(world, running, *KEPT)


@pytest.mark.long
@pytest.mark.parametrize("_time", range(20))
async def test_again_and_again(tmp_path: Path, tell: Tell, _time: int) -> None:
    await test_reads_go_on_admission_says_why_and_somebody_leads(tmp_path, tell)
