"""Logs through other replicas, for a joblet connected to a peer.

All peers are asked at the same time, and the peer with the joblet answers first with an empty piece. Flow control of
gRPC slows the peer down for a slow reader. A stopped peer is noticed by its silence to pings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import grpc

from controlplane.model.errors import ControlPlaneError, OutcomeUnknown, Unavailable
from controlplane.wire import status_codes, transport
from controlplane.wire.v1 import logs_pb2, logs_pb2_grpc

_ANSWER_SECONDS = 2.0
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Few bytes are under way at a time, so a reader who stops is soon felt by the joblet.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class PeerLog:
    """A log on its way through another replica."""

    def __init__(self, call: grpc.aio.UnaryStreamCall[logs_pb2.ReadLogRequest, logs_pb2.LogPiece]) -> None:
        self._call = call

    async def read(self) -> logs_pb2.LogPiece | None:
        """Unavailable when the peer, its connection, or the joblet's connection to the peer broke."""
        try:
            piece = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise _understood(error) from None
        return piece if isinstance(piece, logs_pb2.LogPiece) else None

    def close(self) -> None:
        self._call.cancel()


class Peers:
    """`credential` gives this replica's credential for the replica at an address."""

    def __init__(self, credential: Callable[[str], str], opener: transport.ChannelOpener) -> None:
        self._credential = credential
        self._opener = opener
        # By address and generation of the TLS files: logs on a channel of before go on.
        self._channels: dict[tuple[str, int], grpc.aio.Channel] = {}

    async def open(self, addresses: Sequence[str], request: logs_pb2.ReadLogRequest) -> PeerLog:
        """The log from the first peer with the joblet; Unavailable without one. Other errors are the reading's."""
        asking = [asyncio.ensure_future(self._ask(address, request)) for address in addresses]
        failures: list[ControlPlaneError] = []
        opened: PeerLog | None = None
        try:
            for answer in asyncio.as_completed(asking):
                try:
                    opened = await answer
                    return opened
                except Unavailable:
                    continue
                except ControlPlaneError as error:
                    failures.append(error)
        finally:
            for ask in asking:
                ask.add_done_callback(lambda done: _discard(done, opened))
                ask.cancel()
        if failures:
            raise failures[0]
        raise Unavailable(f"no replica has the joblet of target {request.target} connected")

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def _ask(self, address: str, request: logs_pb2.ReadLogRequest) -> PeerLog:
        metadata = transport.credentials(self._credential(address))
        log = PeerLog(logs_pb2_grpc.LogsStub(self._channel(address)).Read(request, metadata=metadata))
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await log.read()
        except TimeoutError:
            log.close()
            raise Unavailable(f"the replica at {address} does not answer") from None
        except BaseException:
            log.close()
            raise
        return log

    def _channel(self, address: str) -> grpc.aio.Channel:
        key = (address, self._opener.generation)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = self._opener.open(address, _OPTIONS)
        return channel


def _discard(done: asyncio.Future[PeerLog], taken: PeerLog | None) -> None:
    """A log which was opened too late is closed unread."""
    if not done.cancelled() and done.exception() is None and done.result() is not taken:
        done.result().close()


def _understood(error: grpc.aio.AioRpcError) -> ControlPlaneError:
    failure = status_codes.from_rpc(error)
    return Unavailable(str(failure)) if isinstance(failure, OutcomeUnknown) else failure
