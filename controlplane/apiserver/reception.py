"""The entrance of every request: its bytes are measured and its elements counted before protobuf builds anything of it.

Handlers are registered through a `Reception`, which gives gRPC no deserialiser: bytes arrive as they were sent, are
held against `request_limits`, and only then parsed; the large ones in a thread. Each request on a stream is treated so.
To gRPC every method is one that reads a stream of requests, so that a request is read when `receiving` lets it be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError

from controlplane.apiserver import guard, request_limits
from controlplane.apiserver.guard import Context
from controlplane.apiserver.offload import LARGE_BYTES, LARGE_FIELDS, Offload
from controlplane.apiserver.receiving import Receiving
from controlplane.model.errors import ControlPlaneError, Invalid, LimitExceeded, Unavailable
from controlplane.wire import counting

# Below this a request cannot hold enough of anything to matter: admission counts what it holds.
_TINY_BYTES = 2048
MOST_STREAMS_A_CONNECTION = 100
MOST_STREAMS = 4000
_BETWEEN_REPLICAS = "controlplane.v1.Logs.Read"
# A joblet may say something at any time, so that its next message is always waited for, once its hello has come. The
# joblets of one process share connections (`joblet/links`).
_JOBLETS = "controlplane.v1.Joblets.Connect"
MOST_JOBLETS_A_CONNECTION = 250

Parse = Callable[[bytes], Any]
_counter = counting.ElementCounter(request_limits.MAX_ELEMENTS)


class Reception:
    """A server as generated code knows it; what is registered here is registered at the real one, with limits."""

    def __init__(self, server: grpc.aio.Server, offload: Offload) -> None:
        self._server = server
        self._offload = offload
        self._receiving = Receiving()
        self._streams = _Streams(MOST_STREAMS)
        # As many as there are targets: who is one too many is refused with the hello.
        self._joblets = _Streams(None)

    def add_generic_rpc_handlers(self, _handlers: Sequence[Any]) -> None:
        """The same handlers come once more by their names, below: those are registered."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        methods = descriptor_pool.Default().FindServiceByName(service).methods_by_name
        limited = {name: self._limited(handler, methods[name]) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, limited),))

    def _limited(self, handler: Any, method: Any) -> Any:
        request = _Request(method.input_type, handler.request_deserializer, self._offload, self._receiving)
        if handler.stream_stream is not None:
            joblets = method.full_name == _JOBLETS
            stream = request.each_before(handler.stream_stream, waits_for_ever=joblets)
            if joblets:
                bounded = self._joblets.bounded(stream, most=MOST_JOBLETS_A_CONNECTION)
            else:
                bounded = self._streams.bounded(stream, most=MOST_STREAMS_A_CONNECTION)
            return grpc.stream_stream_rpc_method_handler(bounded, None, handler.response_serializer)
        if handler.unary_stream is not None:
            # Another replica asks for the logs of all its clients on one connection.
            most = MOST_STREAMS if method.full_name == _BETWEEN_REPLICAS else MOST_STREAMS_A_CONNECTION
            one = request.before(self._streams.bounded(handler.unary_stream, most=most))
            return grpc.stream_stream_rpc_method_handler(one, None, handler.response_serializer)
        return grpc.stream_unary_rpc_method_handler(
            request.before(handler.unary_unary), None, handler.response_serializer
        )


class _Streams:
    """How many calls without end are open: watches, logs that are followed, joblets."""

    def __init__(self, most: int | None) -> None:
        """`most`: of all connections."""
        self._most = most
        self._of_connection: Counter[str] = Counter()
        self._open = 0

    def bounded(
        self, method: Callable[[Any, Context], Awaitable[Any]], *, most: int
    ) -> Callable[[Any, Context], Awaitable[Any]]:
        """`most`: of one connection."""

        async def call(message: Any, context: Context) -> Any:
            connection = context.peer()
            if self._of_connection[connection] >= most:
                await guard.refuse(context, LimitExceeded(f"a connection must not have above {most} streams open"))
            if self._most is not None and self._open >= self._most:
                await guard.refuse(context, Unavailable(f"{self._open} streams are open; ask another replica"))
            self._of_connection[connection] += 1
            self._open += 1
            try:
                return await method(message, context)
            finally:
                self._open -= 1
                self._of_connection[connection] -= 1
                if not self._of_connection[connection]:
                    del self._of_connection[connection]

        return call


class _Request:
    """How requests of one method become messages."""

    def __init__(self, descriptor: Any, parse: Parse, offload: Offload, receiving: Receiving) -> None:
        self._descriptor = descriptor
        self._parse = parse
        self._offload = offload
        self._receiving = receiving
        self._most_bytes = request_limits.most_bytes(descriptor)
        self._most_fields = request_limits.most_fields(descriptor)

    def before(self, method: Callable[[Any, Context], Awaitable[Any]]) -> Callable[[Any, Context], Awaitable[Any]]:
        """Reads the one request of a call."""

        async def call(_requests: Any, context: Context) -> Any:
            try:
                raw = await self._receiving.message(context.read, context.peer())
                if raw is grpc.aio.EOF:
                    raise Invalid("request", "is missing")
                message = self._read(raw) if len(raw) <= LARGE_BYTES else await self._read_large(raw)
            except ControlPlaneError as error:
                await guard.refuse(context, error)
            return await method(message, context)

        return call

    def each_before(
        self, method: Callable[[AsyncIterator[Any], Context], Awaitable[Any]], *, waits_for_ever: bool
    ) -> Callable[[Any, Context], Awaitable[Any]]:
        """A refusal is raised where the method reads its next request. `waits_for_ever`: for the second and later."""

        async def messages(context: Context) -> AsyncIterator[Any]:
            raw = await self._receiving.message(context.read, context.peer())
            while raw is not grpc.aio.EOF:
                yield self._read(raw)
                again = context.read() if waits_for_ever else self._receiving.message(context.read, context.peer())
                raw = await again

        async def call(_requests: Any, context: Context) -> Any:
            return await method(messages(context), context)

        return call

    async def _read_large(self, raw: bytes) -> Any:
        self._measure(raw)
        self._offload.mark()
        return await self._offload.run(lambda: self._read(raw))

    def _read(self, raw: bytes) -> Any:
        self._measure(raw)
        if len(raw) > _TINY_BYTES and _counter.check(raw, self._descriptor, self._most_fields) > LARGE_FIELDS:
            self._offload.mark()
        try:
            return self._parse(raw)
        except DecodeError:
            raise counting.malformed(self._descriptor) from None

    def _measure(self, raw: bytes) -> None:
        if len(raw) > self._most_bytes:
            raise LimitExceeded(f"a request must not be above {self._most_bytes} bytes, but has {len(raw)}")
