"""Channels to etcd: a channel per endpoint; the current channel is used until a call fails, then the next.

Every call has a deadline. A failed read goes to the next endpoint until the deadline. A write is sent once; a failed
write is Unavailable only when etcd certainly did not apply the write, else OutcomeUnknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

import grpc

from controlplane.aio.clock import Clock
from controlplane.model import errors
from controlplane.tls_files import TlsFiles, TlsSource

T = TypeVar("T")

OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 6000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
]
# etcd answers these before it proposes anything, so the write certainly did not happen.
_NOT_APPLIED = ("no leader", "not capable", "too many requests", "leader changed", "space exceeded")
_NEVER_SENT = ("failed to connect to all addresses", "Name resolution failure", "DNS resolution failed")
_PAUSE_SECONDS = 0.05
# With this metadata a member of etcd refuses calls and ends streams while the member knows no leader. Without it, a
# member that lost its peers but not its clients keeps calls waiting and streams silent for as long as it is cut off.
HAS_LEADER = (("hasleader", "true"),)


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """Endpoints, credentials and time-outs of etcd. TLS files are read at once; `trust` follows their changes."""

    endpoints: tuple[str, ...]
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    timeout_seconds: float = 5.0
    # None where no endpoint is encrypted.
    trust: TlsSource | None = field(init=False, default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise errors.Invalid("etcd", "needs at least one endpoint")
        for endpoint in self.endpoints:
            if not _reachable(endpoint):
                raise errors.Invalid("etcd", f"{endpoint!r} is not a URL such as http://127.0.0.1:2379")
        files = TlsFiles(self.cert_file, self.key_file, self.ca_file, prefix="etcd")
        if any(self.secure(endpoint) for endpoint in self.endpoints):
            object.__setattr__(self, "trust", TlsSource(files))

    def secure(self, endpoint: str) -> bool:
        return endpoint.startswith("https://")

    def address(self, endpoint: str) -> str:
        return urlsplit(endpoint).netloc

    @property
    def generation(self) -> int:
        """Grows with each change of the TLS files: channels opened before do not know the change."""
        return self.trust.generation if self.trust is not None else 0

    def credentials(self) -> grpc.ChannelCredentials:
        assert self.trust is not None
        material = self.trust.material
        return grpc.ssl_channel_credentials(material.ca or None, material.key or None, material.cert or None)


def _reachable(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and bool(parts.port)
    except ValueError:
        return False


class Channels:
    """The set of channels of one process; must be used from one event loop.

    After a change of the TLS files new calls go over new channels. Streams on the channels before go on.
    """

    def __init__(self, options: EtcdOptions, clock: Clock) -> None:
        self.options = options
        self._clock = clock
        self._generation = 0
        self._channels: list[grpc.aio.Channel] = []
        # Channels from before a change of the TLS files. An unused one closes its connection by itself.
        self._former: list[grpc.aio.Channel] = []
        self._current = 0
        self._open_all()

    def _open_all(self) -> None:
        self._generation = self.options.generation
        self._former += self._channels
        self._channels = [self._open(endpoint) for endpoint in self.options.endpoints]

    def _open(self, endpoint: str) -> grpc.aio.Channel:
        address = self.options.address(endpoint)
        if self.options.secure(endpoint):
            return grpc.aio.secure_channel(address, self.options.credentials(), options=OPTIONS)
        return grpc.aio.insecure_channel(address, options=OPTIONS)

    def current(self) -> grpc.aio.Channel:
        if self._generation != self.options.generation:
            self._open_all()
        return self._channels[self._current]

    def every(self) -> tuple[grpc.aio.Channel, ...]:
        """A channel for each endpoint."""
        self.current()
        return tuple(self._channels)

    def leave(self, channel: grpc.aio.Channel) -> None:
        """Use the next endpoint from now on, unless another caller has already moved on."""
        if channel is self.current():
            self._current = (self._current + 1) % len(self._channels)

    async def close(self) -> None:
        for channel in (*self._former, *self._channels):
            await channel.close()

    async def read(self, call: Callable[[grpc.aio.Channel, float], Awaitable[T]], timeout: float | None = None) -> T:
        """Repeats the call over the endpoints until an answer comes or the time is up: reads have no effect."""
        deadline = self._clock.monotonic() + (timeout or self.options.timeout_seconds)
        while True:
            channel = self.current()
            left = deadline - self._clock.monotonic()
            share = max(left / 2, 0.05) if len(self._channels) > 1 else max(left, 0.05)
            try:
                return await call(channel, share)
            except grpc.aio.AioRpcError as error:
                translated = translate(error, applies=False)
                if not isinstance(translated, errors.Unavailable):
                    raise translated from None
                self.leave(channel)
                if self._clock.monotonic() + _PAUSE_SECONDS >= deadline:
                    raise translated from None
            await asyncio.sleep(_PAUSE_SECONDS)

    async def write(self, call: Callable[[grpc.aio.Channel, float], Awaitable[T]], timeout: float | None = None) -> T:
        """Sends the call once. A write is repeated on the next endpoint only if the request certainly never left."""
        deadline = self._clock.monotonic() + (timeout or self.options.timeout_seconds)
        while True:
            channel = self.current()
            left = max(deadline - self._clock.monotonic(), 0.05)
            try:
                return await call(channel, left)
            except grpc.aio.AioRpcError as error:
                translated = translate(error, applies=True)
                if isinstance(translated, errors.Unavailable | errors.OutcomeUnknown):
                    self.leave(channel)
                if not isinstance(translated, errors.Unavailable):
                    raise translated from None
                if "space exceeded" in str(translated) or self._clock.monotonic() + _PAUSE_SECONDS >= deadline:
                    raise translated from None
            await asyncio.sleep(_PAUSE_SECONDS)


def translate(error: grpc.aio.AioRpcError | grpc.RpcError, *, applies: bool) -> errors.ControlPlaneError:
    """etcd's answer as an error of ours; `applies` says whether the call could have changed a key."""
    code = error.code()
    details = error.details() or code.name
    if "compacted" in details:
        return errors.Compacted(details)
    if "lease not found" in details:
        return errors.NotFound(details)
    if code == grpc.StatusCode.UNAVAILABLE and any(text in details for text in _NEVER_SENT):
        return errors.Unavailable(details)
    if any(text in details for text in _NOT_APPLIED):
        return errors.Unavailable(details)
    if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.FAILED_PRECONDITION):
        return errors.Broken(details)
    if applies:
        return errors.OutcomeUnknown(f"{code.name}: {details}")
    return errors.Unavailable(f"{code.name}: {details}")
