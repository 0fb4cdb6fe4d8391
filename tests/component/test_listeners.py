"""Connections and streams that nobody uses: they are few, they are closed, and those who work are served."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import grpc
import pytest

from controlplane.apiserver.edge.http.bounded_site import MOST_CONNECTIONS, SILENCE_SECONDS
from controlplane.apiserver.edge.limited_server import MOST_STREAMS_A_CONNECTION
from controlplane.apiserver.edge.receive_slots import MOST_OF_A_CONNECTION
from controlplane.apiserver.edge.request_limits import MAX_RECEIVED_BYTES
from controlplane.model.errors import LimitExceeded
from controlplane.wire.status_codes import from_rpc
from controlplane.wire.v1 import common_pb2, jobs_pb2_grpc
from tests.component.joblet_sessions.stage import PATIENCE_SECONDS, Api, Stage, staged
from tests.etcd import Etcd
from tests.half_sent import HalfSent, half_sent


@pytest.fixture
async def stage(etcd: Etcd) -> AsyncIterator[Stage]:
    async with staged(etcd) as stage:
        yield stage


@pytest.fixture
async def api(stage: Stage) -> Api:
    return await stage.an_api()


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def connected(port: int, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    return [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]


async def is_live(api: Api) -> bool:
    async with aiohttp.ClientSession() as session, session.get(f"{api.server.http_address}/livez") as answer:
        return answer.status == 200


async def test_idle_connections_neither_fill_the_probe_port_nor_stay(api: Api) -> None:
    held = await connected(port_of(api.server.http_address), MOST_CONNECTIONS + 50)
    assert await is_live(api)
    before = len(os.listdir("/proc/self/fd"))
    async with asyncio.timeout(SILENCE_SECONDS + PATIENCE_SECONDS):
        for reader, _ in held:
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
    assert len(os.listdir("/proc/self/fd")) < before
    for _, writer in held:
        writer.close()


async def test_a_grpc_connection_that_says_nothing_is_closed(api: Api) -> None:
    ((reader, writer),) = await connected(port_of(api.server.grpc_address), 1)
    async with asyncio.timeout(5 + PATIENCE_SECONDS):
        # The settings of HTTP/2 may come first.
        while await reader.read(1000):
            pass
    writer.close()


async def test_the_streams_of_one_connection_are_bounded_and_come_back_when_they_end(api: Api) -> None:
    async def watching(stub: Any) -> Any:
        call = stub.Watch(common_pb2.WatchRequest())
        assert (await call.read()).type == "sync"
        return call

    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(api.server.grpc_address, options=options) as channel:
        stub: Any = jobs_pb2_grpc.JobsStub(channel)
        calls = [await watching(stub) for _ in range(MOST_STREAMS_A_CONNECTION)]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Watch(common_pb2.WatchRequest()).read()
        assert isinstance(from_rpc(refused.value), LimitExceeded)
        # Others have their own connections.
        async with grpc.aio.insecure_channel(api.server.grpc_address, options=options) as other:
            (await watching(jobs_pb2_grpc.JobsStub(other))).cancel()
        # Short calls are no streams.
        await stub.List(common_pb2.ListRequest())
        for call in calls[:2]:
            call.cancel()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    await watching(stub)
                    break
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.05)


_BEGUN = 200
_WINDOW_BYTES = 64 << 10


async def taken(client: HalfSent) -> int:
    """How many bytes the server took, once it takes no more."""
    before = -1
    while client.sent != before:
        before = client.sent
        await asyncio.sleep(0.5)
    return before


@pytest.mark.parametrize(
    "method",
    [
        "/controlplane.v1.Packets/Create",
        "/controlplane.v1.Jobs/Watch",
        "/controlplane.v1.Joblets/Connect",
        "/grpc.health.v1.Health/Check",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ],
)
async def test_of_requests_that_never_end_little_is_kept_and_others_are_served(api: Api, method: str) -> None:
    async with half_sent(api.server.grpc_address) as client:
        for _ in range(_BEGUN):
            await client.begin(method, 4 << 20)
        assert await taken(client) <= MOST_OF_A_CONNECTION * MAX_RECEIVED_BYTES + _BEGUN * _WINDOW_BYTES
        async with grpc.aio.insecure_channel(api.server.grpc_address) as channel:
            stub: Any = jobs_pb2_grpc.JobsStub(channel)
            await stub.List(common_pb2.ListRequest(), timeout=PATIENCE_SECONDS)
