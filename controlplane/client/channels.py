"""One gRPC channel per endpoint, and the choice between them.

A channel is used only when its connection is ready: a refused or stopped endpoint is left after `connect_seconds`,
where gRPC alone would wait 20 s. The endpoint that answered last is tried first. Channels are closed together at the
end, never one by one, because closing one cancels whatever else still runs on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import grpc

Source = Callable[[], Sequence[str]]

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class Lane:
    """The channel to one endpoint, with a stub of every service that was asked for."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._channel = grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
        self._stubs: dict[Any, Any] = {}

    def stub(self, kind: Any) -> Any:
        found = self._stubs.get(kind)
        if found is None:
            found = self._stubs[kind] = kind(self._channel)
        return found

    async def is_ready(self, seconds: float) -> bool:
        """Whether the connection stands within that time; a refused one is known at once."""
        try:
            async with asyncio.timeout(seconds):
                while (state := self._channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                    if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
                        return False
                    await self._channel.wait_for_state_change(state)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        await self._channel.close()


class Channels:
    """`source` is asked again for every choice, so that endpoints may move while a client lives."""

    def __init__(self, source: Source, *, connect_seconds: float) -> None:
        self._source = source
        self._connect_seconds = connect_seconds
        self._lanes: dict[str, Lane] = {}
        self._preferred = 0
        self.tried: tuple[str, ...] = ()

    async def ready(self) -> Lane | None:
        """The first endpoint whose connection stands, beginning with the preferred one; None when there is none."""
        endpoints = tuple(self._source())
        self.tried = endpoints
        start = self._preferred
        for offset in range(len(endpoints)):
            position = (start + offset) % len(endpoints)
            lane = self._lane(endpoints[position])
            if await lane.is_ready(self._connect_seconds):
                self._preferred = position
                return lane
        return None

    def leave(self, lane: Lane) -> None:
        """Prefers the endpoint after this one; nothing happens when another was chosen in the meantime."""
        if self.tried and self.tried[self._preferred % len(self.tried)] == lane.endpoint:
            self.turn()

    def turn(self) -> None:
        self._preferred = (self._preferred + 1) % max(1, len(self.tried))

    async def close(self) -> None:
        lanes, self._lanes = list(self._lanes.values()), {}
        for lane in lanes:
            await lane.close()

    def _lane(self, endpoint: str) -> Lane:
        lane = self._lanes.get(endpoint)
        if lane is None:
            lane = self._lanes[endpoint] = Lane(endpoint)
        return lane
