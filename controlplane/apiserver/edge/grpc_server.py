"""The servers of a replica: gRPC with every service, health and reflection; HTTP beside gRPC on the same loop.

Both serve TLS where the replica has a certificate, and a taken port is an error, never shared. Health is SERVING only
while the cache follows etcd. Stopping sends joblets away first, then gives calls a short grace.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass

import grpc
import structlog
from aiohttp import web
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from controlplane.aio import descriptors
from controlplane.apiserver.access_book import AccessBook
from controlplane.apiserver.api_ports import ApiPorts
from controlplane.apiserver.audit import AuditLog
from controlplane.apiserver.call import Call
from controlplane.apiserver.edge import grpc_calls, grpc_services
from controlplane.apiserver.edge.access_gate import AccessGate, GatePorts
from controlplane.apiserver.edge.http.bounded_site import BoundedSite
from controlplane.apiserver.edge.http.probes import application
from controlplane.apiserver.edge.limited_server import LimitedServer
from controlplane.apiserver.edge.methods import ApiMethod, Send, duplex
from controlplane.apiserver.edge.request_limits import MAX_RECEIVED_BYTES
from controlplane.apiserver.fresh_reads import why_not_ready
from controlplane.apiserver.joblets.joblet_streams import JobletStreams
from controlplane.apiserver.logs.log_broker import LogBroker
from controlplane.model import address
from controlplane.model.errors import Invalid
from controlplane.tls_files import load_pair
from controlplane.wire import transport

log = structlog.get_logger(__name__)

GRACE_SECONDS = 1.0
_HEALTH_SECONDS = 0.25
_MAX_SENT_BYTES = 64 << 20
# Tried with grpcio 1.85: each of these options holds in Python too. A connection above the number of connections is
# closed at once; a connection without an HTTP/2 preface within the handshake's time, or without a call for the idle
# time, is closed by then. No age is set: an age would cut harmless streams of joblets, watches and logs, and the number
# is bounded already. `limited_server` bounds the streams of a kind on a connection; most are a replica's that reads
# logs. Without the probe gRPC keeps 64 KiB at most of a stream without a reader, with the probe some MiB; an awaited
# message is kept whole either way.
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


@dataclass(frozen=True, slots=True)
class Advertised:
    """Addresses at which others reach a server; empty for the bound address."""

    grpc: str = ""
    http: str = ""


AS_BOUND = Advertised()


class ApiServer:
    def __init__(
        self,
        ports: ApiPorts,
        *,
        grpc_address: str,
        http_address: str,
        audit: str = "",
        advertised: Advertised = AS_BOUND,
    ) -> None:
        """`audit` is the file of the audit log, `-` for stdout, empty for none.

        Addresses beyond loopback are for servers that encrypt and ask for credentials.
        """
        self._ports = ports
        self._tls = ports.tls
        beyond = ports.tls is not None and ports.closed
        self._grpc_wanted = address.parse_served(grpc_address, "--grpc", beyond_loopback=beyond)
        self._http_wanted = address.parse_served(http_address, "--http", beyond_loopback=beyond)
        self._advertised = advertised
        self._http_context: ssl.SSLContext | None = None
        connections = ("grpc.max_allowed_incoming_connections", descriptors.most_connections())
        self._server = grpc.aio.server(options=[*OPTIONS, connections])
        self._health = health.aio.HealthServicer()
        self.logs = LogBroker(ports.peer_credential, transport.ChannelOpener(ports.tls))
        self.audit = AuditLog(audit, ports.writes.clock)
        self._joblets = JobletStreams(ports, self.logs)
        self._http: web.AppRunner | None = None
        self._watching: asyncio.Task[None] | None = None
        self.grpc_address = ""
        self.http_address = ""

    async def start(self) -> None:
        """Binds both ports, then serves. `grpc_address` and `http_address` are where others reach them."""
        ports = self._ports
        book = None
        if ports.closed:
            clock, address = ports.writes.clock, lambda: self.grpc_address
            book = AccessBook(ports.reads, clock, ports.cluster_key, address, ports.verifiers)
        self.audit.start()
        limited = LimitedServer(self._server, AccessGate(gate_ports(ports, book, self.audit)))
        grpc_services.register(limited, grpc_services.services(self._ports, self.logs, self._joblets))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, limited)
        reflected = {"ServerReflectionInfo": _reflection()}
        handlers = grpc_calls.rpc_handlers(reflection.SERVICE_NAME, reflected)
        limited.add_registered_method_handlers(reflection.SERVICE_NAME, handlers)
        await self._tell_health(False)
        bound = self._grpc_wanted.at(self._bind_grpc())
        self.grpc_address = self._advertised.grpc or str(bound)
        bound = self._http_wanted.at(await self._start_http())
        self.http_address = f"http{'s' if self._tls else ''}://{self._advertised.http or bound}"
        await self._server.start()
        self._watching = asyncio.get_running_loop().create_task(self._watch_health())
        log.info("serving", grpc=self.grpc_address, http=self.http_address)

    def take_new_certificate(self) -> None:
        """HTTP shows the newest certificate from the next handshake on; gRPC asks for it by itself."""
        if self._http_context is not None and self._tls is not None:
            load_pair(self._http_context, self._tls.material)

    async def stop(self) -> None:
        """Accepts no more calls, sends joblets to other replicas, lets calls end within the grace."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._health.enter_graceful_shutdown()
        self._joblets.close()
        await self._server.stop(GRACE_SECONDS)
        await self.logs.close()
        if self._http is not None:
            await self._http.cleanup()
        await self.audit.close()

    def _bind_grpc(self) -> int:
        port = transport.bind_port(self._server, str(self._grpc_wanted), self._tls)
        if not port:
            raise Invalid("--grpc", f"{self._grpc_wanted} cannot be bound; is the port taken?")
        return port

    async def _start_http(self) -> int:
        self._http = web.AppRunner(application(self._ports), access_log=None, shutdown_timeout=GRACE_SECONDS)
        await self._http.setup()
        wanted = self._http_wanted
        try:
            self._http_context = transport.server_context(self._tls.material) if self._tls is not None else None
            await BoundedSite(self._http, wanted.host, wanted.port, self._http_context).start()
        except OSError as error:
            await self._http.cleanup()
            raise Invalid("--http", f"{wanted} cannot be bound: {error.strerror}") from None
        return int(self._http.addresses[0][1])

    async def _watch_health(self) -> None:
        """Polls: a cache which no longer follows etcd is the absence of an event."""
        was_ready = False
        while True:
            why = why_not_ready(self._ports.reads.cache)
            ready = not why
            if ready != was_ready:
                log.info("ready" if ready else "not ready", why=why)
                await self._tell_health(ready)
                was_ready = ready
            if not ready:
                self._joblets.send_away(why)
            await self._ports.writes.clock.sleep(_HEALTH_SECONDS)

    async def _tell_health(self, ready: bool) -> None:
        status = health_pb2.HealthCheckResponse
        for name in ("", *grpc_services.SERVICES):
            await self._health.set(name, status.SERVING if ready else status.NOT_SERVING)


def gate_ports(ports: ApiPorts, book: AccessBook | None, audit: AuditLog) -> GatePorts:
    writes = ports.writes
    return GatePorts(ports.reads.cache, writes.clock, writes.mint, grpc_calls.refuse, book, audit)


def _reflection() -> ApiMethod:
    """Tells clients the services of the replica."""
    names = [*grpc_services.SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME]
    servicer = reflection.aio.ReflectionServicer(names)

    async def reflect(
        _call: Call,
        requests: AsyncIterator[reflection_pb2.ServerReflectionRequest],
        send: Send[reflection_pb2.ServerReflectionResponse],
    ) -> None:
        # A client that leaves while an answer is being sent is no failure.
        with suppress(grpc.aio.InternalError):
            async with aclosing(servicer.ServerReflectionInfo(requests, None)) as answers:
                async for answer in answers:
                    await send(answer)

    return duplex(reflection_pb2.ServerReflectionRequest, reflection_pb2.ServerReflectionResponse, reflect)
