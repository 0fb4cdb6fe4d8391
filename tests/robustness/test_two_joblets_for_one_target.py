"""A second joblet for the same target is refused until the first one's session is gone."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from controlplane.model import errors
from controlplane.model.target import Live
from controlplane.store import codec, keys
from controlplane.wire import status_codes as wire_errors
from controlplane.wire.v1 import cluster_pb2, joblets_pb2, joblets_pb2_grpc
from tests.credentials import METADATA
from tests.robustness import promises
from tests.robustness.load import an_order, load
from tests.robustness.parts import Joblet
from tests.robustness.patience import until
from tests.robustness.world import Plan, World, a_world

SETTINGS = cluster_pb2.Settings(joblet_lease=2, heartbeat=0.5, target_grace=2, kill_grace=1)


def instance(world: World) -> str:
    live = world.witness.values.get(keys.live("local-1"))
    return codec.decode(live.value, Live).instance if live is not None else ""


async def run_on(world: World, target: str) -> str:
    order = an_order(world.client.mint.make(), real=True, target=target)
    await world.client.orders.submit(order)
    await promises.final(world, {order.id})
    return order.id


async def refusal(endpoint: str, target: str) -> errors.ControlPlaneError:
    """What a joblet hears that has not the secret of the one that is there."""
    hello = joblets_pb2.Hello(target=target, driver="process", instance="another", instance_secret="another")
    async with grpc.aio.insecure_channel(endpoint) as channel:
        call = joblets_pb2_grpc.JobletsStub(channel).Connect(metadata=METADATA)
        await call.write(joblets_pb2.JobletBatch(messages=[joblets_pb2.JobletMessage(hello=hello)]))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        return wire_errors.from_rpc(caught.value)


async def test_a_second_joblet_waits_until_the_first_ones_session_is_gone(tmp_path: Path) -> None:
    async with a_world(tmp_path, Plan(settings=SETTINGS)) as world, load(world.endpoints) as running:
        await running.warm()
        first, holder = world.joblets["local-1"], instance(world)
        flags = ["--driver", "process", "--capacity", "cpu=4,real=4"]
        second = Joblet("local-1", tmp_path / "second", endpoints=world.endpoints, flags=flags)
        second.start()
        try:
            await until(lambda: "another joblet holds the target" in second.log, "the second one has tried")
            for endpoint in world.endpoints:
                assert isinstance(await refusal(endpoint, "local-1"), errors.AlreadyExists)
            order = await run_on(world, "local-1")
            assert instance(world) == holder
            assert order.encode() in first.records()
            assert order.encode() not in second.records()
            first.kill()
            await world.witness.until(lambda: instance(world) not in ("", holder), "the second one is let in")
            order = await run_on(world, "local-1")
            assert order.encode() in second.records()
        finally:
            world.joblets["local-1-again"] = second
        await promises.kept(world, running, "P1", "P2", "P3", "P4", "P5", "P7", "P8", "P9")
