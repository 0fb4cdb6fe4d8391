"""Requests of the allowed size, as large in memory as their bytes can be: each is answered, and the loop goes on.

The leader's lease is given up when its loop is silent for some seconds, so a request that stops the loop deposes it.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool

from controlplane.apiserver.edge.grpc_server import OPTIONS
from controlplane.apiserver.edge.grpc_services import SERVICES
from controlplane.apiserver.edge.request_limits import MAX_REQUEST_BYTES
from controlplane.election.election_settings import ElectionSettings
from controlplane.model import errors
from controlplane.wire.status_codes import from_rpc
from controlplane.wire.v1 import cluster_pb2, common_pb2, orders_pb2, packets_pb2
from tests.component.api_stage import Api, an_api, an_order
from tests.etcd import Etcd

_TICK_SECONDS = 0.02


@pytest.fixture
async def api(shared: Etcd) -> AsyncIterator[Api]:
    async with an_api(shared.endpoint, options=OPTIONS) as started:
        yield started


def methods() -> dict[str, Any]:
    found = {}
    for service in SERVICES:
        for method in descriptor_pool.Default().FindServiceByName(service).methods:
            if not method.client_streaming:
                found[f"/{service}/{method.name}"] = method
    return found


def varint(number: int) -> bytes:
    raw = bytearray()
    while number > 127:
        raw.append(number & 127 | 128)
        number >>= 7
    return bytes((*raw, number))


def paths(descriptor: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every list that a message can hold, as the fields that lead to it."""
    for field in descriptor.fields:
        if field.is_repeated:
            yield (*above, field)
        if field.message_type is not None and field not in above:
            yield from paths(field.message_type, (*above, field))


def filled(path: tuple[Any, ...], size: int) -> bytes:
    """A message that holds nothing but as many empty elements of that list as fit."""
    tag = varint(path[-1].number << 3 | 2)
    raw = (tag + b"\0") * ((size - 64) // (len(tag) + 1))
    for field in reversed(path[:-1]):
        raw = varint(field.number << 3 | 2) + varint(len(raw)) + raw
    return raw


@asynccontextmanager
async def a_loop_that_ticks() -> AsyncIterator[None]:
    """Fails when the loop was silent for so long that a leader would be deposed."""
    gaps = [0.0]

    async def tick() -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(_TICK_SECONDS)
            gaps.append(loop.time() - before)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        await asyncio.sleep(2 * _TICK_SECONDS)
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
    assert max(gaps) < ElectionSettings().loop_silence_seconds


async def send(api: Api, name: str, raw: bytes) -> bytes | errors.ControlPlaneError:
    """The first answer, or the error."""
    try:
        if methods()[name].server_streaming:
            call: Any = api.channel.unary_stream(name, lambda raw: raw, lambda raw: raw)(raw, timeout=60)
            answer = await call.read()
            call.cancel()
            return b"" if answer is grpc.aio.EOF else answer
        return await api.channel.unary_unary(name, lambda raw: raw, lambda raw: raw)(raw, timeout=60)
    except grpc.aio.AioRpcError as error:
        return from_rpc(error)


LISTS = {
    f"{name}: {'.'.join(field.name for field in path)}": (name, path)
    for name, method in methods().items()
    for path in paths(method.input_type)
}
# One of each list of each message is enough to fill; methods share most of them.
ONCE = {path[-1].full_name: (name, path) for name, path in reversed(LISTS.values())}


@pytest.mark.parametrize(("name", "path"), ONCE.values(), ids=ONCE)
async def test_no_list_filled_to_the_allowed_size_is_built(api: Api, name: str, path: tuple[Any, ...]) -> None:
    raw = filled(path, MAX_REQUEST_BYTES)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with a_loop_that_ticks():
        answer = await send(api, name, raw)
    assert isinstance(answer, errors.LimitExceeded)
    # Two million messages take several hundred megabytes.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 << 10


@pytest.mark.parametrize("name", methods())
async def test_a_request_above_its_size_is_refused_unread(api: Api, name: str) -> None:
    async with a_loop_that_ticks():
        for size in (MAX_REQUEST_BYTES + 1, 20 << 20):
            assert isinstance(await send(api, name, b"\x0a\0" * (size // 2 + 1)), errors.LimitExceeded)


async def test_watches_with_long_names_cannot_be_opened(api: Api) -> None:
    raw = common_pb2.WatchRequest(name="n" * (1 << 20)).SerializeToString()
    assert isinstance(await send(api, "/controlplane.v1.Jobs/Watch", raw), errors.LimitExceeded)


async def test_bytes_that_are_no_message_are_refused_as_invalid(api: Api) -> None:
    assert isinstance(await send(api, "/controlplane.v1.Orders/Submit", b"\xff" * 100), errors.Invalid)
    assert isinstance(await send(api, "/controlplane.v1.Orders/Submit", b"\x0a\xff" * 5000), errors.Invalid)


def a_packet(jobs: int, policies: int) -> packets_pb2.Packet:
    packet = packets_pb2.Packet(name="wide")
    for _ in range(jobs):
        job = packet.jobs.add().job.object
        job.command.append("true")
        for code in range(policies):
            job.failure_policies.add(action="retry").on.exit_codes.append(code + 1)
    return packet


async def test_a_packet_of_a_thousand_jobs_with_every_policy_stops_nobody(api: Api) -> None:
    raw = a_packet(1000, 64).SerializeToString()
    async with a_loop_that_ticks():
        sent = [asyncio.create_task(send(api, "/controlplane.v1.Packets/Create", raw)) for _ in range(3)]
        leader = await asyncio.wait_for(api.cluster.GetLeader(cluster_pb2.LeaderRequest()), 30)
        assert not all(call.done() for call in sent)
        answers = await asyncio.gather(*sent)
    assert leader is not None
    assert {type(answer) for answer in answers} == {errors.LimitExceeded}


async def test_a_large_batch_is_admitted_order_by_order(api: Api) -> None:
    batch = orders_pb2.SubmitBatchRequest()
    for _ in range(200):
        order = an_order(count=2)
        for label in range(60):
            order.labels[f"label-{label}"] = "v" * 60
        batch.orders.add().CopyFrom(order)
    batch.orders[7].priority = 1000
    raw = batch.SerializeToString()
    async with a_loop_that_ticks():
        answer = await send(api, "/controlplane.v1.Orders/SubmitBatch", raw)
    assert isinstance(answer, bytes)
    results = orders_pb2.SubmitBatchResponse.FromString(answer).results
    assert [position for position, result in enumerate(results) if result.failure.code] == [7]
    assert len({result.id for result in results}) == 200


async def test_settings_with_every_quota_stop_nobody(api: Api) -> None:
    settings = cluster_pb2.Settings()
    for owner in range(1000):
        for name in range(64):
            settings.quotas[f"owner-{owner}"].quantities[f"q{name}"] = 1
    async with a_loop_that_ticks():
        await send(api, "/controlplane.v1.Cluster/UpdateSettings", settings.SerializeToString())


async def test_words_of_four_bytes_fit_into_the_status_too(api: Api) -> None:
    raw = orders_pb2.Order(target_policy="\U0001f4a5" * 5000).SerializeToString()
    answer = await send(api, "/controlplane.v1.Orders/Submit", raw)
    assert isinstance(answer, errors.Invalid)
