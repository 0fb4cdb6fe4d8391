"""A gRPC server that answers as a test scripts it: the other end of the wire, for tests of the client alone."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from controlplane.model.errors import ControlPlaneError
from controlplane.wire import status_codes as wire_errors
from controlplane.wire.v1 import (
    access_pb2_grpc,
    cluster_pb2,
    cluster_pb2_grpc,
    fulfilments_pb2_grpc,
    jobs_pb2_grpc,
    orders_pb2_grpc,
    targets_pb2_grpc,
)

Answer = Callable[[Any], Awaitable[Any]]


class Broken(Exception):
    """Raised by a script: the call ends as if the connection had broken under it."""


class ScriptedReplica:
    """`answers` maps "Service.Method" to a function of the request; every request is kept in `requests`."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {name.replace("_", "."): answer for name, answer in answers.items()}
        self.requests: list[tuple[str, Any]] = []
        self.endpoint = ""

    def count(self, name: str) -> int:
        return sum(1 for seen, _ in self.requests if seen == name)

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[ScriptedReplica]:
        server = grpc.aio.server()
        for service, add, base in (
            ("Access", access_pb2_grpc.add_AccessServicer_to_server, access_pb2_grpc.AccessServicer),
            ("Orders", orders_pb2_grpc.add_OrdersServicer_to_server, orders_pb2_grpc.OrdersServicer),
            ("Jobs", jobs_pb2_grpc.add_JobsServicer_to_server, jobs_pb2_grpc.JobsServicer),
            ("Cluster", cluster_pb2_grpc.add_ClusterServicer_to_server, cluster_pb2_grpc.ClusterServicer),
            ("Targets", targets_pb2_grpc.add_TargetsServicer_to_server, targets_pb2_grpc.TargetsServicer),
            (
                "Fulfilments",
                fulfilments_pb2_grpc.add_FulfilmentsServicer_to_server,
                fulfilments_pb2_grpc.FulfilmentsServicer,
            ),
        ):
            add(self._servicer(service, base), server)
        self.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        try:
            yield self
        finally:
            await server.stop(None)

    def _servicer(self, service: str, base: Any) -> Any:
        methods = [name for name in vars(base) if not name.startswith("_")]
        body = {
            name: self._stream(service, name) if "Watch" in name else self._unary(service, name) for name in methods
        }
        return type(service, (base,), body)()

    def _unary(self, service: str, name: str) -> Any:
        async def answer(_: Any, request: Any, context: Any) -> Any:
            self.requests.append((f"{service}.{name}", request))
            try:
                return await self._script(service, name)(request)
            except Broken:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            except ControlPlaneError as error:
                context.set_trailing_metadata(wire_errors.trailing_metadata(error))
                await context.abort(wire_errors.code_of(error), str(error))

        return answer

    def _stream(self, service: str, name: str) -> Any:
        async def answer(_: Any, request: Any, context: Any) -> AsyncIterator[Any]:
            self.requests.append((f"{service}.{name}", request))
            async for event in self.answers[f"{service}.{name}"](request):
                yield event

        return answer

    def _script(self, service: str, name: str) -> Answer:
        found: Answer | None = self.answers.get(f"{service}.{name}")
        if found is not None:
            return found
        if (service, name) == ("Cluster", "GetLeader"):
            return _nobody
        raise AssertionError(f"nothing scripted for {service}.{name}")


async def _nobody(request: Any) -> cluster_pb2.Leader:
    return cluster_pb2.Leader()


def always(message: Any) -> Answer:
    async def answer(request: Any) -> Any:
        return message

    return answer


def failing(error: Exception) -> Answer:
    async def answer(request: Any) -> Any:
        raise error

    return answer
