"""The servers of a replica: gRPC with every service, health and reflection; HTTP beside it on the same loop.

Both bind loopback only, and a port that is taken is an error, never shared. Health says SERVING only while the
cache follows etcd. Stopping sends joblets away first, then gives calls a short grace.
"""

from __future__ import annotations

import asyncio

import grpc
import structlog
from aiohttp import web
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from controlplane.aio import descriptors
from controlplane.apiserver import address, guard, services
from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.http.bounded_site import BoundedSite
from controlplane.apiserver.http.probes import application
from controlplane.apiserver.joblets.service import JobletsService
from controlplane.apiserver.readiness import why_not_ready
from controlplane.apiserver.reception import Reception
from controlplane.apiserver.request_limits import MAX_RECEIVED_BYTES
from controlplane.model.errors import Invalid
from controlplane.wire.v1 import (
    cluster_pb2,
    cycles_pb2,
    events_pb2,
    fulfilments_pb2,
    joblets_pb2,
    joblets_pb2_grpc,
    jobs_pb2,
    logs_pb2,
    orders_pb2,
    packets_pb2,
    resources_pb2,
    rules_pb2,
    scalepolicies_pb2,
    secrets_pb2,
    targets_pb2,
)

log = structlog.get_logger(__name__)

GRACE_SECONDS = 1.0
_HEALTH_SECONDS = 0.25
_MAX_SENT_BYTES = 64 << 20
# Tried with grpcio 1.85: each of these holds in Python too. What is above the number of connections is closed at once;
# one that sends no HTTP/2 preface within the handshake's time, or has no call for the idle time, is closed by then. No
# age is set: it would cut streams of joblets, watches and logs that do no harm, and the number is bounded already. How
# many streams of a kind a connection has is bounded by `reception`; most are those of another replica that reads logs.
# Without the probe gRPC keeps 64 KiB at most of a stream that nobody reads from, with it some MiB; of a message that
# somebody waits for it keeps all either way.
OPTIONS = [
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.max_receive_message_length", MAX_RECEIVED_BYTES),
    ("grpc.max_send_message_length", _MAX_SENT_BYTES),
    ("grpc.max_concurrent_streams", 5_000),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
]

_FILES = (
    cluster_pb2, cycles_pb2, events_pb2, fulfilments_pb2, joblets_pb2, jobs_pb2, logs_pb2, orders_pb2, packets_pb2,
    resources_pb2, rules_pb2, scalepolicies_pb2, secrets_pb2, targets_pb2,
)  # fmt: skip
# Every service of the API by its full name.
SERVICES = tuple(service.full_name for file in _FILES for service in file.DESCRIPTOR.services_by_name.values())


class Reflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]
    """Tells clients which services there are; as a handler that `reception` can bound."""

    ServerReflectionInfo = guard.streamed(reflection.aio.ReflectionServicer.ServerReflectionInfo)


class ApiServer:
    def __init__(self, deps: ApiDependencies, *, grpc_address: str, http_address: str) -> None:
        self._deps = deps
        self._grpc_wanted = address.parse(grpc_address, "--grpc")
        self._http_wanted = address.parse(http_address, "--http")
        connections = ("grpc.max_allowed_incoming_connections", descriptors.most_connections())
        self._server = grpc.aio.server(options=[*OPTIONS, connections])
        self._health = health.aio.HealthServicer()
        self._joblets = JobletsService(deps)
        self._http: web.AppRunner | None = None
        self._watching: asyncio.Task[None] | None = None
        self.grpc_address = ""
        self.http_address = ""

    async def start(self) -> None:
        """Binds both ports, then serves. `grpc_address` and `http_address` are what was bound."""
        reception = Reception(self._server, self._deps.offload)
        services.register(reception, self._deps)
        joblets_pb2_grpc.add_JobletsServicer_to_server(self._joblets, reception)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, reception)
        shown = Reflection([*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME])
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(shown, reception)
        await self._tell_health(False)
        self.grpc_address = str(self._grpc_wanted.at(self._bind_grpc()))
        self.http_address = f"http://{self._http_wanted.at(await self._start_http())}"
        await self._server.start()
        self._watching = asyncio.get_running_loop().create_task(self._watch_health())
        log.info("serving", grpc=self.grpc_address, http=self.http_address)

    async def stop(self) -> None:
        """Accepts nothing more, sends joblets to other replicas, lets calls end within the grace."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._health.enter_graceful_shutdown()
        self._joblets.close()
        await self._server.stop(GRACE_SECONDS)
        await self._deps.logs.close()
        self._deps.offload.close()
        if self._http is not None:
            await self._http.cleanup()

    def _bind_grpc(self) -> int:
        try:
            port = self._server.add_insecure_port(str(self._grpc_wanted))
        except RuntimeError:
            port = 0
        if not port:
            raise Invalid("--grpc", f"{self._grpc_wanted} cannot be bound; is the port taken?")
        return port

    async def _start_http(self) -> int:
        self._http = web.AppRunner(application(self._deps), access_log=None, shutdown_timeout=GRACE_SECONDS)
        await self._http.setup()
        wanted = self._http_wanted
        try:
            await BoundedSite(self._http, wanted.host, wanted.port).start()
        except OSError as error:
            await self._http.cleanup()
            raise Invalid("--http", f"{wanted} cannot be bound: {error.strerror}") from None
        return int(self._http.addresses[0][1])

    async def _watch_health(self) -> None:
        """Asks again and again: that a cache no longer follows is the absence of an event."""
        told = False
        while True:
            why = why_not_ready(self._deps.cache)
            ready = not why
            if ready != told:
                log.info("ready" if ready else "not ready", why=why)
                await self._tell_health(ready)
                told = ready
            if not ready:
                self._joblets.send_away(why)
            await self._deps.clock.sleep(_HEALTH_SECONDS)

    async def _tell_health(self, ready: bool) -> None:
        status = health_pb2.HealthCheckResponse
        for name in ("", *SERVICES):
            await self._health.set(name, status.SERVING if ready else status.NOT_SERVING)
