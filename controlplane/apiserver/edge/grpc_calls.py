"""The gRPC side of a row of `methods`: builds the `Call`, runs the handler, answers with a message or a status.

Errors of the system become their status codes. Any other exception becomes INTERNAL and a log line, so no client is
left without an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn

import grpc
import structlog
from google.protobuf import descriptor_pool
from google.protobuf.message import Message

from controlplane.apiserver.call import Call
from controlplane.apiserver.edge.access_gate import CALLER
from controlplane.apiserver.edge.call_notes import NOTE
from controlplane.apiserver.edge.methods import ApiMethod, Methods
from controlplane.model.errors import Broken, ControlPlaneError, LimitExceeded
from controlplane.wire import status_codes

log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
# A request is one message, or the iterator of those that a client streams.
Serve = Callable[[Any, Context], Awaitable[Any]]
# A status travels in headers, which are small; and twice, once of them in base64.
_MAX_MESSAGE_BYTES = 1000
_MAX_FIELD_BYTES = 200


def rpc_handlers(service: str, methods: Methods) -> dict[str, Any]:
    """The handlers of a service for gRPC; Broken when the rows do not match the service's descriptor."""
    rows = dict(methods)
    handlers: dict[str, Any] = {}
    for method in descriptor_pool.Default().FindServiceByName(service).methods:
        row = rows.pop(method.name, None)
        if row is None:
            raise Broken(f"{method.full_name} has no handler")
        messages = (row.request.DESCRIPTOR, row.answer.DESCRIPTOR)
        streams = (row.streams_requests, row.streams_answers)
        wanted = (method.input_type, method.output_type), (method.client_streaming, method.server_streaming)
        if (messages, streams) != wanted:
            raise Broken(f"{method.full_name} has a handler of other messages")
        handlers[method.name] = _rpc_handler(method.full_name, row)
    if rows:
        raise Broken(f"{service} has no method {', '.join(rows)}")
    return handlers


def _rpc_handler(name: str, row: ApiMethod) -> Any:
    codec = row.request.FromString, row.answer.SerializeToString
    if row.streams_requests:
        return grpc.stream_stream_rpc_method_handler(_supervised(name, _duplex(row)), *codec)
    if row.streams_answers:
        return grpc.unary_stream_rpc_method_handler(_supervised(name, _streaming(row)), *codec)
    return grpc.unary_unary_rpc_method_handler(_supervised(name, _unary(row)), *codec)


def _unary(row: ApiMethod) -> Serve:
    handler, min_revision = row.handler, _min_revision_of(row.request)

    def serve(request: Message, context: Context) -> Awaitable[Message]:
        answer: Awaitable[Message] = handler(_call(context, min_revision(request)), request)
        return answer

    return serve


def _streaming(row: ApiMethod) -> Serve:
    """The handler's generator is closed before the call ends, whichever side ends the call."""
    handler, min_revision = row.handler, _min_revision_of(row.request)

    async def serve(request: Message, context: Context) -> None:
        async with aclosing(handler(_call(context, min_revision(request)), request)) as answers:
            async for answer in answers:
                try:
                    await context.write(answer)
                except grpc.aio.InternalError:
                    # The client left while the answer was being sent, which is no failure.
                    return

    return serve


def _duplex(row: ApiMethod) -> Serve:
    async def serve(requests: AsyncIterator[Message], context: Context) -> None:
        await row.handler(_call(context, 0), requests, context.write)

    return serve


def _supervised(name: str, serve: Serve) -> Serve:
    async def call(request: Any, context: Context) -> Any:
        note = NOTE.get()
        if note is not None and isinstance(request, Message):
            note.request = request
        try:
            return await serve(request, context)
        except ControlPlaneError as error:
            await refuse(context, error)
        except Exception as error:
            log.error("unexpected error in a request handler", method=name, exc_info=error)
            await context.abort(grpc.StatusCode.INTERNAL, "the replica failed to answer; its log says why")

    return call


def _min_revision_of(request: type[Message]) -> Callable[[Any], int]:
    if "min_revision" in request.DESCRIPTOR.fields_by_name:
        return lambda message: int(message.min_revision)
    return lambda message: 0


def _call(context: Context, min_revision: int) -> Call:
    seconds = context.time_remaining()
    deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
    return Call(CALLER.get(), min_revision, deadline, context.peer(), context.invocation_metadata)


async def refuse(context: Context, error: ControlPlaneError) -> NoReturn:
    note = NOTE.get()
    if note is not None:
        note.error = error
    message, field = str(error), getattr(error, "field", "")
    short_message, short_field = _cut(message, _MAX_MESSAGE_BYTES), _cut(field, _MAX_FIELD_BYTES)
    if (short_message, short_field) != (message, field):
        retry_after_seconds = getattr(error, "retry_after_seconds", None)
        message, error = short_message, status_codes.rebuild(type(error).__name__, short_message, short_field)
        if isinstance(error, LimitExceeded):
            error.retry_after_seconds = retry_after_seconds
    await context.abort(status_codes.code_of(error), message, status_codes.trailing_metadata(error))


def _cut(text: str, most_bytes: int) -> str:
    """As much of the text as fits, in whole characters."""
    raw = text.encode(errors="replace")
    return text if len(raw) <= most_bytes else raw[:most_bytes].decode(errors="ignore")
