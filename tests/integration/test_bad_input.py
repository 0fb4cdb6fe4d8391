"""Bad input over the real API: a typed error that names the field, and nothing in etcd has changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import grpc
import pytest

from controlplane.client import Client
from controlplane.model import errors
from controlplane.store import keys
from controlplane.store.transaction import Item, put
from controlplane.wire.v1 import cluster_pb2, common_pb2, jobs_pb2, orders_pb2, packets_pb2, resources_pb2, targets_pb2
from controlplane.wire.v1.orders_pb2_grpc import OrdersStub
from tests.credentials import METADATA, TOKEN
from tests.robustness.load import an_order
from tests.robustness.world import Plan, World, a_world

NAN, INFINITY = float("nan"), float("inf")


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One replica without targets: nobody but the test changes anything."""
    async with a_world(tmp_path_factory.mktemp("world"), Plan(replicas=1, processes=0, simulated=0)) as world:
        yield world


@pytest.fixture
async def unchanged(world: World) -> AsyncIterator[None]:
    before = await everything(world)
    yield
    assert await everything(world) == before, "nothing has changed"


async def everything(world: World) -> dict[str, int]:
    """Every key and the revision it was written at, but for what the leader keeps about the whole in its own time."""
    found: dict[str, int] = {}
    async for page in world.witness.store.pages(keys_only=True):
        found |= {value.key: value.mod_revision for value in page.values}
    return {key: at for key, at in found.items() if not key.startswith((keys.event(""), keys.TOTALS))}


def packet(*jobs: jobs_pb2.Job) -> orders_pb2.PacketRef:
    parts = [packets_pb2.PacketJob(job=packets_pb2.JobRef(object=job), count=1) for job in jobs]
    return orders_pb2.PacketRef(object=packets_pb2.Packet(jobs=parts))


def requesting(**amounts: float) -> orders_pb2.PacketRef:
    return packet(jobs_pb2.Job(command=["true"], requests=common_pb2.Quantities(of=amounts)))


WRONG_ORDERS = {
    "priority 0": (orders_pb2.Order(packet=requesting(cpu=1), priority=0), errors.Invalid, "priority"),
    "priority 101": (orders_pb2.Order(packet=requesting(cpu=1), priority=101), errors.Invalid, "priority"),
    "unknown packet": (orders_pb2.Order(packet=orders_pb2.PacketRef(name="nothing")), errors.NotFound, "packet"),
    "no packet": (orders_pb2.Order(), errors.Invalid, "packet"),
    "unknown job": (
        orders_pb2.Order(
            packet=orders_pb2.PacketRef(
                object=packets_pb2.Packet(jobs=[packets_pb2.PacketJob(job=packets_pb2.JobRef(name="nothing"))])
            )
        ),
        errors.NotFound,
        "packet.jobs[0].job",
    ),
    "unknown resource": (
        orders_pb2.Order(packet=packet(jobs_pb2.Job(command=["true"], resources=["nothing"]))),
        errors.NotFound,
        "packet.jobs[0].job.resources[0]",
    ),
    "unknown target": (
        orders_pb2.Order(packet=requesting(cpu=1), target_policy="strict:nowhere"),
        errors.NotFound,
        "target_policy",
    ),
    "odd policy": (orders_pb2.Order(packet=requesting(cpu=1), target_policy="best"), errors.Invalid, "target_policy"),
    "negative": (orders_pb2.Order(packet=requesting(cpu=-1)), errors.Invalid, "packet.jobs[0].job.requests.cpu"),
    "NaN": (orders_pb2.Order(packet=requesting(cpu=NAN)), errors.Invalid, "packet.jobs[0].job.requests.cpu"),
    "infinite": (orders_pb2.Order(packet=requesting(cpu=INFINITY)), errors.Invalid, "packet.jobs[0].job.requests.cpu"),
    "over the size limit": (
        orders_pb2.Order(packet=packet(*(jobs_pb2.Job(command=["x" * 60_000]) for _ in range(5)))),
        errors.LimitExceeded,
        "packet",
    ),
    "odd identity": (orders_pb2.Order(id="not-a-ulid", packet=requesting(cpu=1)), errors.Invalid, "id"),
    "negative deadline": (orders_pb2.Order(packet=requesting(cpu=1), deadline=-5), errors.Invalid, "deadline"),
    "no time": (orders_pb2.Order(packet=requesting(cpu=1), not_before="soon"), errors.Invalid, "not_before"),
}


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("case", WRONG_ORDERS)
async def test_a_wrong_order_is_refused_by_the_field_that_is_wrong(world: World, case: str) -> None:
    order, kind, field = WRONG_ORDERS[case]
    with pytest.raises(errors.Refused) as caught:
        await world.client.orders.submit(order)
    assert (type(caught.value), caught.value.field) == (kind, field), str(caught.value)
    assert field in str(caught.value), "a person reads which field it is"


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("case", WRONG_ORDERS)
async def test_the_same_order_in_a_batch_gets_the_same_refusal(world: World, case: str) -> None:
    order, kind, field = WRONG_ORDERS[case]
    answer = await world.client.orders.submit_batch(orders_pb2.SubmitBatchRequest(orders=[order]))
    failure = answer.results[0].failure
    assert (failure.code, failure.field) == (kind.__name__, field), failure.message


WRONG_OBJECTS = {
    "name": (cluster_pb2.Object(job=jobs_pb2.Job(name="No Name", command=["true"])), "name"),
    "requests.cpu": (
        cluster_pb2.Object(job=jobs_pb2.Job(name="a", requests=common_pb2.Quantities(of={"cpu": -1}))),
        "requests.cpu",
    ),
    "capacity.cpu": (
        cluster_pb2.Object(target=targets_pb2.Target(name="a", capacity=common_pb2.Quantities(of={"cpu": NAN}))),
        "capacity.cpu",
    ),
    "key": (cluster_pb2.Object(resource=resources_pb2.Resource(name="a", key="not a key")), "key"),
    "heartbeat": (cluster_pb2.Object(settings=cluster_pb2.Settings(heartbeat=100)), "heartbeat"),
}


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("case", WRONG_OBJECTS)
async def test_a_file_with_one_wrong_object_is_refused_whole(world: World, case: str) -> None:
    good = cluster_pb2.Object(job=jobs_pb2.Job(name="good", command=["true"]))
    wrong, field = WRONG_OBJECTS[case]
    with pytest.raises(errors.Invalid) as caught:
        await world.client.cluster.apply(cluster_pb2.ApplyRequest(objects=[good, wrong]))
    assert caught.value.field.endswith(field), caught.value


async def test_an_identity_that_is_used_again_for_something_else_is_refused(world: World) -> None:
    identity = world.client.mint.make()
    await world.client.orders.submit(an_order(identity))
    before = await everything(world)
    with pytest.raises(errors.AlreadyExists) as caught:
        await world.client.orders.submit(an_order(identity, command=("false",)))
    assert caught.value.field == "id"
    assert (await world.client.orders.submit(an_order(identity))).repeated
    assert await everything(world) == before


@pytest.mark.usefixtures("unchanged")
async def test_junk_on_the_grpc_port_harms_nobody(world: World) -> None:
    host, port = world.replicas["replica-1"].grpc.split(":")
    for junk in (
        b"\0" * 4096,
        os.urandom(65536),
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 999,
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(junk)
        try:
            await asyncio.wait_for(reader.read(), 5.0)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            writer.transport.abort()
    assert (await world.client.cluster.leader()).id == "replica-1"


@pytest.mark.usefixtures("unchanged")
async def test_bytes_that_are_no_message_are_refused(world: World) -> None:
    async with grpc.aio.insecure_channel(world.replicas["replica-1"].grpc) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/controlplane.v1.Orders/Submit")
        with pytest.raises(grpc.aio.AioRpcError, match="Order"):
            await call(b"\xff\xff\xff\xff", timeout=5, metadata=METADATA)
        unknown = orders_pb2.Order(packet=requesting(cpu=1)).SerializeToString() + b"\xfa\x3f\x01x"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(unknown, timeout=5, metadata=METADATA)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, "a field that nobody knows"
        await OrdersStub(channel).List(common_pb2.ListRequest(), timeout=5, metadata=METADATA)


async def test_a_value_in_etcd_that_is_not_json_is_named_and_harms_nothing_else(world: World) -> None:
    await world.witness.store.commit(Item(then=(put(keys.config("packets", "broken"), b"{not json"),)))
    await world.witness.caught_up()
    before = await everything(world)
    async with Client(world.endpoints, token=TOKEN) as client:
        with pytest.raises(errors.ControlPlaneError, match="packet"):
            await client.orders.submit(orders_pb2.Order(packet=orders_pb2.PacketRef(name="broken")))
        with pytest.raises(errors.ControlPlaneError, match="broken"):
            await client.packets.get("broken")
        listed = await client.packets.page(common_pb2.ListRequest())
        assert "broken" not in [item.name for item in listed.items]
        assert await everything(world) == before
        await client.packets.delete("broken")
