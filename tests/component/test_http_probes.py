"""What a replica says of itself over HTTP and gRPC health, and where it may be reached."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from controlplane.apiserver.edge.grpc_server import ApiServer
from controlplane.model.errors import Invalid
from controlplane.model.leadership import Term
from tests.component.joblet_sessions.stage import PATIENCE_SECONDS, Api, Stage, staged
from tests.etcd import Etcd

SINCE = "2026-01-01T00:00:00.000Z"


@pytest.fixture
async def stage(etcd: Etcd) -> AsyncIterator[Stage]:
    async with staged(etcd) as stage:
        yield stage


async def get(api: Api, path: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(api.server.http_address + path) as answer:
        return answer.status, await answer.json()


def a_term() -> Term:
    return Term(epoch=7, id="replica-1", incarnation="replica-1-life-1", since=SINCE, grpc="a:1", http="http://a:2")


async def healthy(api: Api, wanted: int) -> None:
    """Returns when the health service says so."""
    async with grpc.aio.insecure_channel(api.server.grpc_address) as channel:
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""))
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for answer in watching:
                if answer.status == wanted:
                    watching.cancel()
                    return
    raise AssertionError("the health service stopped answering")


async def test_a_replica_without_a_picture_of_etcd_lives_but_is_not_ready(stage: Stage) -> None:
    api = await stage.an_api(follows=False)
    assert (await get(api, "/livez"))[0] == 200
    status, body = await get(api, "/readyz")
    assert (status, body["ready"]) == (503, False)
    assert "not been filled" in body["why"]
    await healthy(api, health_pb2.HealthCheckResponse.NOT_SERVING)


@pytest.mark.parametrize(
    "raw", [b"GET * HTTP/9.9", b"GET /livez HTTP/1.1\r\nno colon", b"\xff\x1b[2J", b"GET http://[::1/ HTTP/1.1"]
)
async def test_bytes_that_are_no_http_write_nothing_into_the_log(
    stage: Stage, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    host, _, port = (await stage.an_api()).server.http_address.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(raw + b"\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.split(b" ")[1] == b"400"
    assert [record.getMessage() for record in caplog.records if record.name.startswith("aiohttp")] == []


async def test_a_replica_that_follows_etcd_is_ready(stage: Stage) -> None:
    api = await stage.an_api()
    await api.a_target()
    await healthy(api, health_pb2.HealthCheckResponse.SERVING)
    status, body = await get(api, "/readyz")
    assert (status, body) == (200, {"id": "replica-1", "ready": True, "revision": api.cache.revision})


async def test_a_replica_that_lost_etcd_says_so_and_recovers(stage: Stage) -> None:
    api = await stage.an_api()
    await healthy(api, health_pb2.HealthCheckResponse.SERVING)
    stage.etcd.kill()
    await healthy(api, health_pb2.HealthCheckResponse.NOT_SERVING)
    status, body = await get(api, "/readyz")
    assert status == 503
    assert "no sign of life" in body["why"]
    assert (await get(api, "/livez"))[0] == 200
    stage.etcd.start()
    await healthy(api, health_pb2.HealthCheckResponse.SERVING)
    assert (await get(api, "/readyz"))[0] == 200


async def test_leaderz_names_the_leader_and_whether_it_is_asked_itself(stage: Stage) -> None:
    leader, standby = await stage.an_api(), await stage.an_api()
    leader.ballot.term = standby.ballot.term = a_term()
    said = {"id": "replica-1", "epoch": 7, "since": SINCE, "grpc": "a:1", "http": "http://a:2"}
    assert await get(leader, "/leaderz") == (200, {**said, "leads": True, "replica": "replica-1"})
    assert await get(standby, "/leaderz") == (200, {**said, "leads": False, "replica": "replica-2"})


async def test_leaderz_says_when_nobody_leads(stage: Stage) -> None:
    status, body = await get(await stage.an_api(), "/leaderz")
    assert status == 503
    assert (body["id"], body["epoch"], body["leads"]) == (None, None, False)


async def test_a_probe_of_a_closed_replica_is_told_the_status_code_alone(stage: Stage) -> None:
    api = await stage.an_api(closed=True)
    async with aiohttp.ClientSession() as session:
        for term, status in ((None, 503), (a_term(), 200)):
            api.ballot.term = term
            async with session.get(f"{api.server.http_address}/leaderz") as answer:
                assert (answer.status, await answer.read()) == (status, b"")
        async with session.get(f"{api.server.http_address}/readyz") as answer:
            assert answer.status == 200


async def test_a_closed_replica_tells_its_health_and_nothing_else_without_credentials(stage: Stage) -> None:
    api = await stage.an_api(closed=True)
    await healthy(api, health_pb2.HealthCheckResponse.SERVING)
    async with grpc.aio.insecure_channel(api.server.grpc_address) as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_reflection_shows_every_service(stage: Stage) -> None:
    api = await stage.an_api()
    async with grpc.aio.insecure_channel(api.server.grpc_address) as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await call.read()
        call.cancel()
    names = {service.name for service in answer.list_services_response.service}
    assert {f"controlplane.v1.{name}" for name in ("Orders", "Targets", "Cluster", "Joblets")} <= names
    assert "grpc.health.v1.Health" in names


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:7000", "[::]:0"])
async def test_an_address_that_is_not_loopback_is_refused_by_its_flag(stage: Stage, address: str) -> None:
    api = await stage.an_api(follows=False)
    with pytest.raises(Invalid, match=r"^--grpc: .* loopback"):
        ApiServer(api.ports, grpc_address=address, http_address="127.0.0.1:0")
    with pytest.raises(Invalid, match=r"^--http: .* loopback"):
        ApiServer(api.ports, grpc_address="127.0.0.1:0", http_address=address)


@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.0.0.1:", ":7000", "127.0.0.1:70000", "host.example:1"])
async def test_what_is_no_address_is_refused_by_its_flag(stage: Stage, address: str) -> None:
    api = await stage.an_api(follows=False)
    with pytest.raises(Invalid, match=r"^--grpc: "):
        ApiServer(api.ports, grpc_address=address, http_address="127.0.0.1:0")


@pytest.mark.parametrize("flag", ["--grpc", "--http"])
async def test_a_port_that_is_taken_is_an_error_and_never_shared(stage: Stage, flag: str) -> None:
    api = await stage.an_api(follows=False)
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = f"127.0.0.1:{holder.getsockname()[1]}"
        grpc_address, http_address = (taken, "127.0.0.1:0") if flag == "--grpc" else ("127.0.0.1:0", taken)
        server = ApiServer(api.ports, grpc_address=grpc_address, http_address=http_address)
        with pytest.raises(Invalid, match=f"^{flag}: {taken} cannot be bound"):
            await server.start()
        await server.stop()


async def test_two_replicas_never_share_a_port(stage: Stage) -> None:
    api = await stage.an_api(follows=False)
    server = ApiServer(api.ports, grpc_address=api.server.grpc_address, http_address="127.0.0.1:0")
    with pytest.raises(Invalid, match=r"^--grpc: "):
        await server.start()
    await server.stop()
