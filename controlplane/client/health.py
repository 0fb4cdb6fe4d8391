"""The health of a replica, which a caller without credentials may ask for."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from controlplane.wire import transport


async def is_serving(endpoint: str, seconds: float, opener: transport.ChannelOpener = transport.PLAIN) -> bool | None:
    """Whether the replica says that it serves: its cache is filled and follows etcd. None without an answer in time."""
    async with opener.open(endpoint, (("grpc.enable_http_proxy", 0),)) as channel:
        try:
            request = health_pb2.HealthCheckRequest()
            answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=seconds)
        except grpc.aio.AioRpcError:
            return None
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
