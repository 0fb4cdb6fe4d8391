"""gRPC channels, one per endpoint, and the choice between them.

A channel is used only when its connection is ready: a refused or stopped endpoint is left after `connect_seconds`,
where gRPC alone would wait 20 s. The endpoint that answered last is tried first. Channels are closed together at the
end, never singly, because closing a channel cancels every call that still runs on the channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from controlplane.model import address
from controlplane.model.errors import Invalid
from controlplane.wire import transport

ListEndpoints = Callable[[], Sequence[str]]
# The token to send with every call, '' for none; asked for anew with each call, since tokens are renewed.
FindToken = Callable[[], str]

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class EndpointChannel:
    """The channel to an endpoint, with a stub of every service used so far."""

    def __init__(self, endpoint: str, find_token: FindToken, opener: transport.ChannelOpener) -> None:
        self.endpoint = endpoint
        self._find_token = find_token
        self._is_private = opener.is_encrypted or address.is_loopback(address.parse(endpoint, "endpoints").host)
        self._channel = opener.open(endpoint, _OPTIONS)
        self._stubs: dict[Any, Any] = {}

    def stub(self, kind: Any) -> Any:
        stub = self._stubs.get(kind)
        if stub is None:
            stub = self._stubs[kind] = kind(self._channel)
        return stub

    @property
    def metadata(self) -> transport.Metadata:
        """The metadata of every call: the credentials of the client. No token leaves this machine unencrypted."""
        token = self._find_token()
        if token and not self._is_private:
            raise Invalid("ca-file", f"is needed: a token goes to {self.endpoint} over TLS only")
        return transport.credentials(token)

    async def is_ready(self, seconds: float) -> bool:
        """Whether the connection stands within these seconds; a refused connection is known at once."""
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


class ChannelPool:
    """`list_endpoints` is called for every choice, so endpoints may move while a client lives."""

    def __init__(
        self,
        list_endpoints: ListEndpoints,
        *,
        connect_seconds: float,
        find_token: FindToken = lambda: "",
        opener: transport.ChannelOpener = transport.PLAIN,
    ) -> None:
        self._list_endpoints = list_endpoints
        self._connect_seconds = connect_seconds
        self._find_token = find_token
        self._opener = opener
        # By endpoint and generation of the TLS files: calls on a channel of before go on.
        self._channels: dict[tuple[str, int], EndpointChannel] = {}
        self._preferred = 0
        self.tried: tuple[str, ...] = ()

    async def ready(self) -> EndpointChannel | None:
        """The first channel with a standing connection, beginning at the preferred endpoint; None when none stands."""
        endpoints = tuple(self._list_endpoints())
        self.tried = endpoints
        start = self._preferred
        for offset in range(len(endpoints)):
            position = (start + offset) % len(endpoints)
            channel = self._channel_to(endpoints[position])
            if await channel.is_ready(self._connect_seconds):
                self._preferred = position
                return channel
        if self._opener.trust is not None:
            # The CA may be another one by now; the next choice then opens new channels.
            await asyncio.to_thread(self._opener.trust.look)
        return None

    def avoid(self, channel: EndpointChannel) -> None:
        """Prefers the endpoint after this channel's; without effect when another endpoint is preferred meanwhile."""
        if self.tried and self.tried[self._preferred % len(self.tried)] == channel.endpoint:
            self.prefer_next()

    def prefer_next(self) -> None:
        self._preferred = (self._preferred + 1) % max(1, len(self.tried))

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()

    def _channel_to(self, endpoint: str) -> EndpointChannel:
        key = (endpoint, self._opener.generation)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = EndpointChannel(endpoint, self._find_token, self._opener)
        return channel
