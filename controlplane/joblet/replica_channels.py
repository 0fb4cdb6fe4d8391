"""Channels to the replicas, shared by the targets of one process, and the slots in which these targets say hello."""

from __future__ import annotations

import asyncio

import grpc

from controlplane.joblet.shown_credential import ShownCredential
from controlplane.wire import transport

# A replica bounds the joblets of a connection: below that bound, a joblet that returns has room beside its own former
# stream, which may not be over yet.
TARGETS_A_CHANNEL = 100
# Targets of a process that say hello at the same time. All of them at once would wait for each other until each target
# took its replica for silent.
_HELLO_SLOTS = 32
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


class ReplicaChannels:
    """Opens a channel when a target first asks for it; `targets` is the number of targets of the process.

    `credential` goes with every call. A stream that begins after the TLS files changed gets a new channel; streams on
    the channel of before go on.
    """

    def __init__(
        self,
        endpoints: tuple[str, ...],
        targets: int,
        credential: ShownCredential | None = None,
        opener: transport.ChannelOpener = transport.PLAIN,
    ) -> None:
        self.endpoints = endpoints
        self._opener = opener
        self.credential = credential or ShownCredential("")
        self._width = 1 + (targets - 1) // TARGETS_A_CHANNEL
        self.hello_slots = asyncio.Semaphore(_HELLO_SLOTS)
        self._channels: dict[tuple[str, int, int], grpc.aio.Channel] = {}

    def channel(self, endpoint: str, target: int) -> grpc.aio.Channel:
        key = (endpoint, target % self._width, self._opener.generation)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = self._opener.open(endpoint, _OPTIONS)
        return channel

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
