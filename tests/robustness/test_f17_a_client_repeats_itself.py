"""F17: a client does not hear the answer to its submit and repeats it through another replica."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.model.errors import OutcomeUnknown, Unavailable
from controlplane.store import keys
from controlplane.wire.v1 import orders_pb2
from tests.credentials import TOKEN
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.link import Link
from tests.robustness.load import an_order, load
from tests.robustness.network import linked_to_etcd
from tests.robustness.patience import PATIENCE_SECONDS, until
from tests.robustness.world import Plan, World, a_world

KEPT = ("P2", "P3")
MANY = 20
HASTY = CallTimeouts(attempt_seconds=2.0, total_seconds=2.0)
_LATELY_BYTES = 65_536
PATIENT = CallTimeouts(attempt_seconds=PATIENCE_SECONDS, total_seconds=PATIENCE_SECONDS)


def on_its_way(link: Link, orders: Sequence[orders_pb2.Order]) -> bool:
    """Whether a replica has sent one of them to etcd, however far it got."""
    lately = [bytes(connection.up.said[-_LATELY_BYTES:]) for connection in link.connections]
    return any(order.id.encode() in said for said in lately for order in orders)


def creations(world: World, order: str) -> int:
    key = keys.order(order)
    changes = (change for change in world.witness.changes if change.key == key)
    return sum(change.value is not None and change.value.create_revision == change.revision for change in changes)


@pytest.mark.parametrize("lost", ["the submit on its way to etcd", "etcd's answer"])
async def test_a_submit_repeated_through_another_replica_is_one_order(tmp_path: Path, tell: Tell, lost: str) -> None:
    async with AsyncExitStack() as stack:
        world, links = await stack.enter_async_context(linked_to_etcd(tmp_path, Plan(ttl=5), transcribe=True))
        running = await stack.enter_async_context(load(world.endpoints))
        rates = await running.warm()
        deaf, other = world.standbys
        link = links[deaf.name]
        first = await stack.enter_async_context(Client([deaf.grpc], token=TOKEN, timeouts=HASTY))
        second = await stack.enter_async_context(Client([other.grpc], token=TOKEN))
        orders = [an_order(first.mint.make()) for _ in range(MANY)]
        # A replica waits for few answers of etcd at a time: none of them shall be one to the load.
        running.pause()
        await running.answered()
        link.hold(link.up if lost.startswith("the submit") else link.down)
        submits = asyncio.gather(*(first.orders.submit(order) for order in orders), return_exceptions=True)
        await until(lambda: on_its_way(link, orders), "a submit is on its way to etcd")
        running.resume()
        unheard = await submits
        assert all(isinstance(answer, OutcomeUnknown | Unavailable) for answer in unheard), unheard
        answers = [await second.orders.submit(order) for order in orders]
        link.release()
        # Those behind the first ones wait in the replica for an answer to these.
        assert any(answer.repeated for answer in answers) == (lost == "etcd's answer")
        again = [await second.orders.submit(order) for order in orders]
        assert all(answer.repeated for answer in again)
        assert [answer.item.id for answer in again] == [order.id for order in orders]
        identities = {order.id for order in orders}
        await promises.final(world, identities)
        promises.succeeded_once(world, identities)
        await promises.kept(world, running, *KEPT)
        assert {creations(world, order) for order in (*identities, *running.acknowledged)} == {1}
        repeated = sum(ask.tries > 1 for ask in running.asks.values())
        tell(
            f"{lost}: offered {rates.offered:.1f}/s, reached {rates.reached:.1f}/s, {repeated} of the load repeated too"
        )


async def test_a_submit_to_a_stopped_replica_is_repeated_and_is_one_order(tmp_path: Path, tell: Tell) -> None:
    """The stopped replica finds the submit in its socket when it goes on, long after it was repeated elsewhere."""
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        stopped, other = world.standbys
        async with (
            Client([stopped.grpc], token=TOKEN, timeouts=PATIENT) as first,
            Client([other.grpc], token=TOKEN) as second,
        ):
            await first.cluster.status()
            stopped.signal(signal.SIGSTOP)
            orders = [an_order(first.mint.make()) for _ in range(MANY)]
            late = [asyncio.create_task(first.orders.submit(order)) for order in orders]
            answers = [await second.orders.submit(order) for order in orders]
            assert not any(answer.repeated for answer in answers)
            stopped.signal(signal.SIGCONT)
            assert all(answer.repeated for answer in await asyncio.gather(*late))
        identities = {order.id for order in orders}
        await promises.final(world, identities)
        promises.succeeded_once(world, identities)
        await promises.kept(world, running, *KEPT)
        assert {creations(world, order) for order in (*identities, *running.acknowledged)} == {1}
        tell(f"offered {rates.offered:.1f}/s, reached {rates.reached:.1f}/s")
