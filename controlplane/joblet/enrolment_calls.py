"""The calls of a joblet about its credential, through whichever replica answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import grpc

from controlplane.joblet.replica_channels import ReplicaChannels
from controlplane.model.errors import (
    Conflict,
    ControlPlaneError,
    IllegalTransition,
    LimitExceeded,
    OutcomeUnknown,
    Unavailable,
)
from controlplane.wire import status_codes, transport
from controlplane.wire.v1 import access_pb2, access_pb2_grpc

_SECONDS = 5.0
# An enrolment creates the targets, of which there may be thousands.
_SECONDS_A_TARGET = 0.01
_ANOTHER_MAY_DO = (Unavailable, OutcomeUnknown, Conflict, LimitExceeded)


class EnrolmentCalls:
    """Raises Unavailable when no replica answered, the error of the first replica that refused, and IllegalTransition
    when the replicas that answered are all of a version without enrolment.

    Each call is safe to repeat: it names the digest of a text that the joblet made.
    """

    def __init__(self, channels: ReplicaChannels) -> None:
        self._channels = channels
        self._first = 0

    async def enrol(self, token: str, request: access_pb2.EnrolRequest) -> access_pb2.Credential:
        seconds = _SECONDS + _SECONDS_A_TARGET * len(request.targets)
        metadata = transport.credentials(token)
        return await self._ask(lambda stub: stub.Enrol(request, timeout=seconds, metadata=metadata))

    async def renew(self, token: str, digest: str) -> access_pb2.Credential:
        request, metadata = access_pb2.RenewRequest(digest=digest), transport.credentials(token)
        return await self._ask(lambda stub: stub.Renew(request, timeout=_SECONDS, metadata=metadata))

    async def _ask(
        self, call: Callable[[access_pb2_grpc.AccessAsyncStub], Awaitable[access_pb2.Credential]]
    ) -> access_pb2.Credential:
        endpoints = self._channels.endpoints
        last: ControlPlaneError = Unavailable("no replica was asked")
        too_old = False
        for _ in endpoints:
            channel = self._channels.channel(endpoints[self._first % len(endpoints)], 0)
            try:
                return await call(access_pb2_grpc.AccessStub(channel))
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    too_old = True
                else:
                    last = status_codes.from_rpc(error)
                    if not isinstance(last, _ANOTHER_MAY_DO):
                        raise last from None
            self._first += 1
        if too_old:
            raise IllegalTransition("the replicas are of a version that enrols no joblets")
        raise Unavailable(str(last))
