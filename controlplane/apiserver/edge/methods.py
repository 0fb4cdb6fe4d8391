"""The methods of the API as rows: the message of the request, the message of the answer, the handler between.

Rows are data. `grpc_calls` turns rows into handlers of gRPC, and compares the messages of a row with proto/.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import Message

from controlplane.apiserver.call import Call

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
Send = Callable[[A], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ApiMethod:
    """`handler` has the type required by `unary`, `streaming` or `duplex`."""

    request: type[Message]
    answer: type[Message]
    handler: Callable[..., Any]
    streams_requests: bool = False
    streams_answers: bool = False


Methods = Mapping[str, ApiMethod]


def unary(request: type[Q], answer: type[A], handler: Callable[[Call, Q], Awaitable[A]]) -> ApiMethod:
    return ApiMethod(request, answer, handler)


def streaming(request: type[Q], answer: type[A], handler: Callable[[Call, Q], AsyncGenerator[A, None]]) -> ApiMethod:
    return ApiMethod(request, answer, handler, streams_answers=True)


def duplex(
    request: type[Q], answer: type[A], handler: Callable[[Call, AsyncIterator[Q], Send[A]], Awaitable[None]]
) -> ApiMethod:
    return ApiMethod(request, answer, handler, streams_requests=True, streams_answers=True)
