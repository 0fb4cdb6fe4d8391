"""LimitedServer: registers handlers at a gRPC server, behind the limits of requests and streams.

gRPC gets no deserialiser, so the bytes of a request arrive as sent. The bytes are measured and the elements counted
against `request_limits` before protobuf parses a message; large messages are parsed in a thread. To gRPC every method
reads a stream of requests, so that a request is read only when `receive_slots` allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import DecodeError

from controlplane.apiserver import large_requests
from controlplane.apiserver.edge import grpc_calls, request_limits
from controlplane.apiserver.edge.access_gate import AccessGate
from controlplane.apiserver.edge.grpc_calls import Context
from controlplane.apiserver.edge.receive_slots import ReceiveSlots
from controlplane.apiserver.large_requests import LARGE_BYTES, LARGE_FIELDS
from controlplane.model.errors import ControlPlaneError, Invalid, LimitExceeded, Unavailable
from controlplane.wire import counting

# A request below this cannot hold enough elements to matter: admission counts them.
_TINY_BYTES = 2048
MOST_STREAMS_A_CONNECTION = 100
MOST_STREAMS = 4000
_BETWEEN_REPLICAS = "controlplane.v1.Logs.Read"
# A joblet may send a message at any time, so the next message after the hello is awaited without a limit. The joblets
# of one process share connections.
_JOBLETS = "controlplane.v1.Joblets.Connect"
MOST_JOBLETS_A_CONNECTION = 250

# The class of a message is known to the tables of gRPC only.
Serve = Callable[[Any, Context], Awaitable[Any]]
_counter = counting.ElementCounter(request_limits.MAX_ELEMENTS)


class LimitedServer:
    """Has the two methods of a server through which generated code registers a service."""

    def __init__(self, server: grpc.aio.Server, gate: AccessGate) -> None:
        self._server = server
        self._gate = gate
        self._receiving = ReceiveSlots()
        self._streams = _Streams(MOST_STREAMS)
        # As many joblets as there are targets: a session for one target too many is refused at its hello.
        self._joblets = _Streams(None)

    def add_generic_rpc_handlers(self, _handlers: Sequence[Any]) -> None:
        """Ignored: generated code hands in the same handlers by name, below."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        methods = descriptor_pool.Default().FindServiceByName(service).methods_by_name
        limited = {name: self._limited(handler, methods[name]) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, limited),))

    def _limited(self, handler: Any, method: MethodDescriptor) -> grpc.RpcMethodHandler[Any, Any]:
        request = _Requests(method.input_type, handler.request_deserializer, self._receiving, self._gate.received)
        if handler.stream_stream is not None:
            joblets = method.full_name == _JOBLETS
            stream = request.each_before(handler.stream_stream, waits_for_ever=joblets)
            if joblets:
                bounded = self._joblets.bounded(stream, most=MOST_JOBLETS_A_CONNECTION)
            else:
                bounded = self._streams.bounded(stream, most=MOST_STREAMS_A_CONNECTION)
            guarded = self._gate.guarded(method.full_name, bounded, stream=True)
            return grpc.stream_stream_rpc_method_handler(guarded, None, handler.response_serializer)
        if handler.unary_stream is not None:
            # Another replica asks for the logs of all its clients on one connection.
            most = MOST_STREAMS if method.full_name == _BETWEEN_REPLICAS else MOST_STREAMS_A_CONNECTION
            serve = request.first_before(self._streams.bounded(handler.unary_stream, most=most))
            serve = self._gate.guarded(method.full_name, serve, stream=True)
            return grpc.stream_stream_rpc_method_handler(serve, None, handler.response_serializer)
        serve = self._gate.guarded(method.full_name, request.first_before(handler.unary_unary), stream=False)
        return grpc.stream_unary_rpc_method_handler(serve, None, handler.response_serializer)


class _Streams:
    """The number of open calls without an end: watches, followed logs, joblets."""

    def __init__(self, most: int | None) -> None:
        """`most`: of all connections."""
        self._most = most
        self._of_connection: Counter[str] = Counter()
        self._open = 0

    def bounded(self, serve: Serve, *, most: int) -> Serve:
        """`most`: of one connection."""

        async def call(message: Any, context: Context) -> Any:
            connection = context.peer()
            if self._of_connection[connection] >= most:
                await grpc_calls.refuse(context, LimitExceeded(f"a connection must not have above {most} streams open"))
            if self._most is not None and self._open >= self._most:
                await grpc_calls.refuse(context, Unavailable(f"{self._open} streams are open; ask another replica"))
            self._of_connection[connection] += 1
            self._open += 1
            try:
                return await serve(message, context)
            finally:
                self._open -= 1
                self._of_connection[connection] -= 1
                if not self._of_connection[connection]:
                    del self._of_connection[connection]

        return call


class _Requests:
    """Turns the bytes of one method's requests into messages."""

    def __init__(
        self,
        descriptor: Descriptor,
        parse: Callable[[bytes], Any],
        receiving: ReceiveSlots,
        count_bytes: Callable[[int], None],
    ) -> None:
        self._descriptor = descriptor
        self._count_bytes = count_bytes
        self._parse = parse
        self._receiving = receiving
        self._most_bytes = request_limits.most_bytes(descriptor)
        self._most_fields = request_limits.most_fields(descriptor)

    def first_before(self, serve: Serve) -> Serve:
        """Reads the only request of a call, then serves the call."""

        async def call(_requests: Any, context: Context) -> Any:
            try:
                raw = await self._receiving.message(context.read, context.peer())
                if raw is grpc.aio.EOF:
                    raise Invalid("request", "is missing")
                self._count_bytes(len(raw))
                message = self._read(raw) if len(raw) <= LARGE_BYTES else await self._read_large(raw)
            except ControlPlaneError as error:
                await grpc_calls.refuse(context, error)
            return await serve(message, context)

        return call

    def each_before(
        self, serve: Callable[[AsyncIterator[Any], Context], Awaitable[Any]], *, waits_for_ever: bool
    ) -> Serve:
        """A refusal is raised where `serve` reads its next request. `waits_for_ever`: for the second and later ones."""

        async def messages(context: Context) -> AsyncIterator[Any]:
            raw = await self._receiving.message(context.read, context.peer())
            while raw is not grpc.aio.EOF:
                yield self._read(raw)
                again = context.read() if waits_for_ever else self._receiving.message(context.read, context.peer())
                raw = await again

        async def call(_requests: Any, context: Context) -> Any:
            return await serve(messages(context), context)

        return call

    async def _read_large(self, raw: bytes) -> Any:
        self._measure(raw)
        large_requests.mark()
        return await large_requests.run(lambda: self._read(raw))

    def _read(self, raw: bytes) -> Any:
        self._measure(raw)
        if len(raw) > _TINY_BYTES and _counter.check(raw, self._descriptor, self._most_fields) > LARGE_FIELDS:
            large_requests.mark()
        try:
            return self._parse(raw)
        except DecodeError:
            raise counting.malformed(self._descriptor) from None

    def _measure(self, raw: bytes) -> None:
        if len(raw) > self._most_bytes:
            raise LimitExceeded(f"a request must not be above {self._most_bytes} bytes, but has {len(raw)}")
