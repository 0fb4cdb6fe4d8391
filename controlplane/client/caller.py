"""One call made to stick: endpoint after endpoint, attempt after attempt, until it is answered or patience ends.

A call that is not safe to repeat is sent again only when it certainly did not apply. A connection that broke under
such a call raises OutcomeUnknown: whether it applied is for the caller to find out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc

from controlplane.aio.clock import Clock
from controlplane.client.channels import Channels, Lane
from controlplane.model.errors import ControlPlaneError, OutcomeUnknown, Unavailable
from controlplane.wire import errors as wire_errors

A = TypeVar("A")

_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Method(Generic[A]):
    """One method of one service, and the message that answers it."""

    stub: Any
    name: str
    answer: type[A]


@dataclass(frozen=True)
class Patience:
    """connect: until an endpoint's connection must stand; attempt: deadline of one call; total: of all attempts."""

    connect_seconds: float = 1.0
    attempt_seconds: float = 5.0
    total_seconds: float = 6.0


class Caller:
    """`revision` is the highest one that a write answered with or a watch showed.

    Reads ask for it: a client reads its own writes, and never sees older state than it has seen, on any replica.
    """

    def __init__(self, channels: Channels, patience: Patience, clock: Clock) -> None:
        self.channels = channels
        self.patience = patience
        self.clock = clock
        self.revision = 0

    async def read(self, method: Method[A], request: Any) -> A:
        return await self.call(method, request, repeatable=True)

    async def write(self, method: Method[A], request: Any, *, repeatable: bool) -> A:
        answer = await self.call(method, request, repeatable=repeatable)
        self.revision = max(self.revision, getattr(answer, "revision", 0))
        return answer

    async def call(self, method: Method[A], request: Any, *, repeatable: bool) -> A:
        give_up = self.clock.monotonic() + self.patience.total_seconds
        while True:
            lane = await self.lane(give_up)
            try:
                send = getattr(lane.stub(method.stub), method.name)
                answer: A = await send(request, timeout=self.patience.attempt_seconds)
                return answer
            except grpc.aio.AioRpcError as error:
                failure = understand(error)
            again = isinstance(failure, Unavailable) or (repeatable and isinstance(failure, OutcomeUnknown))
            if not again or self.clock.monotonic() >= give_up:
                raise failure
            self.channels.leave(lane)
            await self.clock.sleep(_PAUSE_SECONDS)

    async def lane(self, give_up: float) -> Lane:
        """A ready connection, or Unavailable when none stood until `give_up` (monotonic)."""
        while True:
            lane = await self.channels.ready()
            if lane is not None:
                return lane
            if self.clock.monotonic() >= give_up:
                raise Unavailable(
                    f"no control plane answers at {', '.join(self.channels.tried) or 'no address at all'}"
                )
            await self.clock.sleep(_PAUSE_SECONDS)


def understand(error: grpc.aio.AioRpcError) -> ControlPlaneError:
    """What the error means for a call that was sent: without our server's word for it, it may have applied."""
    failure = wire_errors.from_rpc(error)
    if isinstance(failure, Unavailable) and not came_from_server(error):
        return OutcomeUnknown(f"the connection broke before the answer came ({error.details()})")
    return failure


def came_from_server(error: grpc.aio.AioRpcError) -> bool:
    return any(key == wire_errors.DETAILS_KEY for key, _ in error.trailing_metadata() or ())
