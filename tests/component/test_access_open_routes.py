"""The whole gRPC server of a closed replica: health is open, reflection is not, and nothing else is served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from controlplane.aio.clock import SystemClock
from controlplane.apiserver.api_ports import ApiPorts, ReplicaIdentity, Writes
from controlplane.apiserver.commands.group_writer import GroupWriter
from controlplane.apiserver.edge.grpc_server import ApiServer
from controlplane.model.access import SECRET_BYTES, token_text
from controlplane.store.lease import Renewals
from controlplane.wire import transport
from tests.component.access_requests import requests_for
from tests.component.access_stage import KEY, Answer, Plane, Work, a_plane, ask, methods
from tests.component.api_stage import mint
from tests.etcd import Etcd

Code = grpc.StatusCode
REFLECT = "grpc.reflection.v1alpha.ServerReflection.ServerReflectionInfo"


class Server:
    def __init__(self, plane: Plane, channel: grpc.aio.Channel) -> None:
        self.plane = plane
        self.channel = channel

    async def asks(self, method: str, request: Message, token: str = "") -> Answer:
        found = descriptor_pool.Default().FindMethodByName(method)
        return await ask(self.channel, found, [request], transport.credentials(token))


@pytest.fixture
async def server(emptied: Etcd) -> AsyncIterator[Server]:
    async with a_plane(emptied) as plane:
        api, clock = plane.api, SystemClock()
        ports = ApiPorts(
            reads=api.reads,
            writes=Writes(GroupWriter(api.store), clock, mint, api.space),
            replica=ReplicaIdentity("whole", "test", "whole-1"),
            election=api.leadership,
            renewals=Renewals(api.store.channels),
            closed=True,
            cluster_key=KEY,
        )
        started = ApiServer(ports, grpc_address="127.0.0.1:0", http_address="127.0.0.1:0")
        await started.start()
        async with grpc.aio.insecure_channel(started.grpc_address) as channel:
            yield Server(plane, channel)
        await started.stop()


async def test_health_is_open(server: Server) -> None:
    for token in ("", "junk"):
        answer = await server.asks("grpc.health.v1.Health.Check", health_pb2.HealthCheckRequest(), token)
        assert answer.code is Code.OK, answer
        watched = await server.asks("grpc.health.v1.Health.Watch", health_pb2.HealthCheckRequest(), token)
        assert watched.code is Code.OK, watched
        assert len(watched.messages) == 1


async def test_reflection_asks_for_credentials(server: Server) -> None:
    listing = reflection_pb2.ServerReflectionRequest(list_services="")
    for token in ("", "junk", token_text(b"u" * SECRET_BYTES)):
        answer = await server.asks(REFLECT, listing, token)
        assert (answer.code, answer.messages) == (Code.UNAUTHENTICATED, []), answer
    for role in ("viewer", "submitter"):
        told = await server.asks(REFLECT, listing, await server.plane.token("ada", role))
        assert told.code is Code.OK
        assert len(told.messages[0].list_services_response.service) > 15


async def test_every_method_asks_for_credentials_and_an_unknown_method_is_not_served(server: Server) -> None:
    ways = [(method, list(requests_for(method, Work("ada")))) for method in methods()]
    answers = await asyncio.gather(*(ask(server.channel, method, requests, ()) for method, requests in ways))
    assert {answer.code for answer in answers} == {Code.UNAUTHENTICATED}
    root = await server.plane.token("root", "admin")
    for path in ("/controlplane.v1.Jobs/Steal", "/controlplane.v1.Thieves/List"):
        method: Any = server.channel.unary_unary(path)
        call = method(b"", metadata=transport.credentials(root))
        assert await call.code() is Code.UNIMPLEMENTED
