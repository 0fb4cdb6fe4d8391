"""The edge of every RPC: errors of the system become their status, anything else becomes INTERNAL and a log line.

Nothing that a handler raises leaves a client without an answer.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn, TypeVar

import grpc
import structlog

from controlplane.model.errors import ControlPlaneError, LimitExceeded
from controlplane.wire import errors

log = structlog.get_logger(__name__)

S = TypeVar("S")
Context = grpc.aio.ServicerContext[Any, Any]
# A status travels in headers, which are small; and twice, once of them in base64.
_MAX_WORDS = 1000
_MAX_FIELD = 200

Call = Callable[[S, Any, Context], Awaitable[Any]]
Stream = Callable[[S, Any, Context], AsyncGenerator[Any, None]]


def answered(method: Call[S]) -> Call[S]:
    @functools.wraps(method)
    async def call(self: S, request: Any, context: Context) -> Any:
        try:
            return await method(self, request, context)
        except ControlPlaneError as error:
            await refuse(context, error)
        except Exception as error:  # noqa: BLE001 - the last one who can answer the client
            await _broke(context, method.__qualname__, error)

    return call


def streamed(method: Stream[S]) -> Call[S]:
    """Makes a handler of an async generator, which is closed before the call ends, whoever ends it."""

    @functools.wraps(method)
    async def call(self: S, request: Any, context: Context) -> Any:
        try:
            async with aclosing(method(self, request, context)) as messages:
                async for message in messages:
                    if not await _sent(context, message):
                        return
        except ControlPlaneError as error:
            await refuse(context, error)
        except Exception as error:  # noqa: BLE001 - the last one who can answer the client
            await _broke(context, method.__qualname__, error)

    return call


async def _sent(context: Context, message: Any) -> bool:
    """False when the client left while it was being sent, which is nobody's fault."""
    try:
        await context.write(message)
    except grpc.aio.InternalError:
        return False
    return True


async def refuse(context: Context, error: ControlPlaneError) -> NoReturn:
    message, field = str(error), getattr(error, "field", "")
    words, place = _cut(message, _MAX_WORDS), _cut(field, _MAX_FIELD)
    if (words, place) != (message, field):
        retry_after_seconds = getattr(error, "retry_after_seconds", None)
        message, error = words, errors.rebuild(type(error).__name__, words, place)
        if isinstance(error, LimitExceeded):
            error.retry_after_seconds = retry_after_seconds
    await context.abort(errors.code_of(error), message, errors.trailing_metadata(error))


def _cut(text: str, most_bytes: int) -> str:
    """As much of the text as fits, in whole characters."""
    raw = text.encode(errors="replace")
    return text if len(raw) <= most_bytes else raw[:most_bytes].decode(errors="ignore")


async def _broke(context: Context, method: str, error: Exception) -> None:
    log.error("a request failed for a reason nobody foresaw", method=method, exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, f"the replica failed to answer: {type(error).__name__}")
