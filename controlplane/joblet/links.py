"""Channels to the replicas, shared by the targets of one process, and the door through which these come in."""

from __future__ import annotations

import asyncio

import grpc

# A replica bounds how many joblets a connection has: with fewer on each, a joblet that comes back finds room beside its
# own stream that is not over yet.
TARGETS_A_CHANNEL = 100
# So many targets of a process say hello at the same time. All at once, they would wait for each other until each of
# them took its replica for silent.
_AT_THE_DOOR = 32
# A connection attempt ends after the minimal back-off; a stopped replica would otherwise hold it for 20 s.
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
)


class Links:
    """Makes a channel when it is first asked for."""

    def __init__(self, endpoints: tuple[str, ...], targets: int) -> None:
        self.endpoints = endpoints
        self._width = 1 + (targets - 1) // TARGETS_A_CHANNEL
        self.door = asyncio.Semaphore(_AT_THE_DOOR)
        self._channels: dict[tuple[str, int], grpc.aio.Channel] = {}

    def channel(self, endpoint: str, target: int) -> grpc.aio.Channel:
        key = (endpoint, target % self._width)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
        return channel

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
