"""Calls over several endpoints: attempt after attempt, endpoint after endpoint, until an answer or the time-out.

A call that is unsafe to repeat is sent again only when the call certainly did not apply. A connection that broke under
such a call raises OutcomeUnknown: the caller has to find out whether the call applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc

from controlplane.aio.clock import Clock
from controlplane.client.channels import ChannelPool, EndpointChannel
from controlplane.model.errors import ControlPlaneError, OutcomeUnknown, Unavailable
from controlplane.wire import status_codes as wire_errors

A = TypeVar("A")

_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Method(Generic[A]):
    """A method of a service, and the type of its answer."""

    stub: Any
    name: str
    answer: type[A]


@dataclass(frozen=True)
class CallTimeouts:
    """connect: limit for an endpoint's connection; attempt: deadline of a single call; total: of all attempts."""

    connect_seconds: float = 1.0
    attempt_seconds: float = 5.0
    total_seconds: float = 6.0


class Caller:
    """`revision` is the highest revision that a write answered with or a watch showed.

    Reads ask for at least this revision: on any replica a client reads its own writes, and never reads older state than
    before.
    """

    def __init__(self, channels: ChannelPool, timeouts: CallTimeouts, clock: Clock) -> None:
        self.channels = channels
        self.timeouts = timeouts
        self.clock = clock
        self.revision = 0

    async def read(self, method: Method[A], request: Any) -> A:
        return await self.call(method, request, repeatable=True)

    async def write(self, method: Method[A], request: Any, *, repeatable: bool) -> A:
        answer = await self.call(method, request, repeatable=repeatable)
        self.revision = max(self.revision, getattr(answer, "revision", 0))
        return answer

    async def call(self, method: Method[A], request: Any, *, repeatable: bool) -> A:
        give_up = self.clock.monotonic() + self.timeouts.total_seconds
        while True:
            channel = await self.ready_channel(give_up)
            try:
                send = getattr(channel.stub(method.stub), method.name)
                answer: A = await send(request, timeout=self.timeouts.attempt_seconds, metadata=channel.metadata)
                return answer
            except grpc.aio.AioRpcError as error:
                failure = understand(error)
            again = isinstance(failure, Unavailable) or (repeatable and isinstance(failure, OutcomeUnknown))
            if not again or self.clock.monotonic() >= give_up:
                raise failure
            self.channels.avoid(channel)
            await self.clock.sleep(_PAUSE_SECONDS)

    async def ready_channel(self, give_up: float) -> EndpointChannel:
        """A channel with a ready connection; Unavailable when no connection stood until `give_up` (monotonic)."""
        while True:
            channel = await self.channels.ready()
            if channel is not None:
                return channel
            if self.clock.monotonic() >= give_up:
                raise Unavailable(
                    f"no control plane answers at {', '.join(self.channels.tried) or 'no address at all'}"
                )
            await self.clock.sleep(_PAUSE_SECONDS)


def understand(error: grpc.aio.AioRpcError) -> ControlPlaneError:
    """The meaning of the error for a call that was sent: unless a replica answered, the call may have applied."""
    failure = wire_errors.from_rpc(error)
    if isinstance(failure, Unavailable) and not came_from_server(error):
        return OutcomeUnknown(f"the connection broke before the answer came ({error.details()})")
    return failure


def came_from_server(error: grpc.aio.AioRpcError) -> bool:
    """Whether a replica made the error, not the connection."""
    return any(key == wire_errors.DETAILS_KEY for key, _ in error.trailing_metadata() or ())
