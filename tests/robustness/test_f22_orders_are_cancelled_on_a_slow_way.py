"""F22: etcd is 50 ms away from the leader; orders are cancelled while their large placements are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.model.errors import IllegalTransition, OutcomeUnknown, Unavailable
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import OrderStatus
from controlplane.store import keys
from controlplane.verify import history
from controlplane.wire.v1 import orders_pb2
from tests.credentials import TOKEN
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import an_order, load
from tests.robustness.network import linked_to_etcd
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.world import UNIQUE, Plan, World

AWAY_SECONDS = 0.05
MANY = 2000
A_BATCH = 200
CALLS_AT_ONCE = 100
# So that a group of placements reaches its 1 MiB.
PADDING = "x" * 1000
# The target comes when all orders wait for it, so that one cycle places all of them.
TARGET = ["--driver", "simulated", "--capacity", "cpu=5000,far=5000", "--duration", "2s"]
CALM_SECONDS = 3.0
PATIENT = CallTimeouts(attempt_seconds=PATIENCE_SECONDS, total_seconds=PATIENCE_SECONDS)


def a_far_order(identity: str, number: int) -> orders_pb2.Order:
    order = an_order(identity, unique=UNIQUE[number] if number < len(UNIQUE) else "")
    job = order.packet.object.jobs[0].job.object
    job.requests.of.clear()
    job.requests.of.update({"cpu": 1.0, "far": 1.0})
    job.env["PADDING"] = PADDING
    return order


async def submit(client: Client) -> set[str]:
    orders = [a_far_order(client.mint.make(), number) for number in range(MANY)]
    for start in range(0, MANY, A_BATCH):
        await client.orders.submit_batch(orders_pb2.SubmitBatchRequest(orders=orders[start : start + A_BATCH]))
    return {order.id for order in orders}


async def cancel(client: Client, orders: set[str]) -> None:
    turn = asyncio.Semaphore(CALLS_AT_ONCE)

    async def one(order: str) -> None:
        async with turn:
            while True:
                # Some may have succeeded by then; a cancel that was not answered is said again.
                with suppress(OutcomeUnknown, Unavailable):
                    with suppress(IllegalTransition):
                        await client.orders.cancel(order)
                    return

    await asyncio.gather(*(one(order) for order in sorted(orders)))


def desired_though_final(world: World) -> Iterator[str]:
    """Every key of desired/ that was there while its order was final."""
    final: set[str] = set()
    placed: dict[str, str] = {}
    for _, events in history.by_revision(world.witness.changes):
        for event in events:
            if event.tree == keys.DESIRED:
                placed.pop(event.key, None)
                if isinstance(event.object, Fulfilment):
                    placed[event.key] = event.object.order
        touched = {event.key for event in events}
        for event in events:
            if isinstance(event.object, OrderStatus) and event.object.phase in FINAL_ORDER:
                final.add(event.object.order)
                yield from (key for key, order in placed.items() if order == event.object.order)
        yield from (key for key in touched if placed.get(key) in final)


async def test_what_is_cancelled_while_it_is_being_placed_stays_cancelled(tmp_path: Path, tell: Tell) -> None:
    plan = Plan(replicas=2, ttl=5, processes=1, simulated=2)
    async with linked_to_etcd(tmp_path, plan) as (world, links), load(world.endpoints, rate=10) as running:
        near = world.standbys[0]
        async with Client([near.grpc], token=TOKEN, timeouts=PATIENT) as client:
            orders = await submit(client)
            for way in (links[world.leader.name].up, links[world.leader.name].down):
                way.delay(AWAY_SECONDS, 0.0)
            world._add("far", TARGET, (near.grpc,))
            await world.witness.until(lambda: world.witness.targets.get("far") == "Ready", "the far target is Ready")
            await cancel(client, orders)
        await promises.final(world, orders)
        await asyncio.sleep(CALM_SECONDS)
        await promises.kept(world, running)
        placed = {key for key, _ in keys_of(world, "desired")}
        phases = {order: world.witness.phases[order] for order in orders}
        tell(f"{sum(phase == 'Cancelled' for phase in phases.values())} of {MANY} were cancelled")
        assert set(desired_though_final(world)) == set()
        assert placed == set()
        assert {key for key, _ in keys_of(world, "claims")} == set()
        assert set(phases.values()) <= {"Cancelled", "Succeeded"}


def keys_of(world: World, tree: str) -> Iterator[tuple[str, bytes]]:
    for key, value in world.witness.values.items():
        if (keys.parse(key) or ("", ()))[0] == tree:
            yield key, value.value
