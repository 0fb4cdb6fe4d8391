"""A whole replica that leads, in the test's own process, and a witness that plays users and joblets in etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from controlplane import replica as product
from controlplane.aio.clock import SystemClock
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.leadership import Candidate
from controlplane.model.order import Order
from controlplane.replica_settings import ReplicaSettings
from controlplane.store import keys
from controlplane.wire.v1 import cluster_pb2_grpc, orders_pb2_grpc, resources_pb2_grpc, targets_pb2_grpc
from tests.builders import OrderBuilder, an_order
from tests.component.leader_stage import PATIENCE_SECONDS, Replica, following
from tests.etcd import Etcd


class Witness(Replica):
    """Sees all that the leader writes."""

    channel: grpc.aio.Channel

    def terms(self) -> int:
        return self.cache.snapshot.count(keys.TERMS)

    def isolated(self) -> dict[tuple[str, str], str]:
        """What the leader leaves out, by kind and name, with the error of each."""
        record = self.cache.snapshot.isolation()
        return {} if record is None else {(key.about.kind, key.about.name): key.error for key in record.keys}

    def told(self, reason: str) -> set[str]:
        """The names of what events with that reason are about."""
        events = [entry.read() for entry in self.cache.snapshot.all(keys.EVENTS)]
        return {event.about.name for event in events if event.reason == reason}

    def placed(self, order: str) -> list[Fulfilment]:
        """Beside placements that nobody can read."""
        placed = self.cache.snapshot.objects(keys.DESIRED)
        return [fulfilment for fulfilment in placed if fulfilment.order == order]

    async def submit(self, builder: OrderBuilder) -> Order:
        order = builder.build()
        await self.write({keys.order(order.id): order})
        return order

    async def others_run(self, count: int = 3) -> None:
        """Orders of somebody else, one after the other, from their submission to their end."""
        for _ in range(count):
            order = await self.submit(an_order().jobs(cpu=1))
            await self.until(lambda order=order: len(self.placed(order.id)) == 1)  # type: ignore[misc]
            await self.report(self.placed(order.id)[0], "Succeeded")
            await self.until(lambda order=order: self.phase(order.id) == "Succeeded")  # type: ignore[misc]

    def candidate(self) -> Candidate | None:
        return next((entry.read() for entry in self.cache.snapshot.all(keys.CANDIDATES)), None)

    @property
    def orders(self) -> Any:
        return orders_pb2_grpc.OrdersStub(self.channel)

    @property
    def resources(self) -> Any:
        return resources_pb2_grpc.ResourcesStub(self.channel)

    @property
    def targets_api(self) -> Any:
        return targets_pb2_grpc.TargetsStub(self.channel)

    @property
    def cluster(self) -> Any:
        return cluster_pb2_grpc.ClusterStub(self.channel)


@asynccontextmanager
async def a_plane(etcd: Etcd, **settings: Any) -> AsyncIterator[Witness]:
    """One replica that leads, a target with room, and a client's channel to it."""
    stop = asyncio.Event()
    replica = product.Replica(ReplicaSettings(etcd=(etcd.endpoint,), insecure=True, **settings), SystemClock())
    work = asyncio.create_task(replica.run(stop))
    try:
        async with following(etcd.endpoint, Witness) as witness:
            await witness.until(lambda: witness.terms() == 1 and witness.cache.snapshot.count(keys.CYCLES) > 0)
            candidate = witness.candidate()
            assert candidate is not None
            async with grpc.aio.insecure_channel(candidate.grpc) as witness.channel:
                await witness.join("t1", cpu=64)
                yield witness
    finally:
        stop.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await work
