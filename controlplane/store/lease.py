"""Leases: renewed on one shared stream for many (joblets' sessions), or by blocking calls from a thread of its own.

`Renewals` renews a lease only when asked to, and says whether it was still there. `BlockingLease` is for the
election's thread, which must go on while the event loop is busy: it uses a channel of its own and no event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
from aetcd import rpc

from controlplane.model import errors
from controlplane.store.channel import OPTIONS, Channels, EtcdOptions, translate


class Renewals:
    """One keep-alive stream for all leases that this process renews; opened anew after a failure."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._outbox: asyncio.Queue[int] = asyncio.Queue()
        self._waiting: dict[int, list[asyncio.Future[bool]]] = {}

    async def renew(self, lease: int, timeout: float) -> bool:
        """True when the lease lives on; False when it is gone; Unavailable when etcd did not answer in time."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(lease, []).append(future)
        self._outbox.put_nowait(lease)
        try:
            return await asyncio.wait_for(future, timeout)
        except TimeoutError:
            raise errors.Unavailable("etcd did not answer a lease renewal in time") from None

    async def run(self) -> None:
        while True:
            channel = self._channels.current()
            try:
                call = rpc.LeaseStub(channel).LeaseKeepAlive(self._requests())
                async for answer in call:
                    for future in self._waiting.pop(answer.ID, ()):
                        if not future.done():
                            future.set_result(answer.TTL > 0)
            except grpc.aio.AioRpcError as error:
                self._channels.leave(channel)
                self._fail(translate(error, applies=False))
            await asyncio.sleep(0.05)

    def _fail(self, error: errors.ControlPlaneError) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in (future for futures in waiting.values() for future in futures):
            if not future.done():
                future.set_exception(errors.Unavailable(str(error)))

    async def _requests(self) -> AsyncIterator[rpc.LeaseKeepAliveRequest]:
        while True:
            yield rpc.LeaseKeepAliveRequest(ID=await self._outbox.get())


class BlockingLease:
    """Grant, renew and revoke by blocking calls; for one thread. Tries the endpoints in turn."""

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._current = 0
        self._channels: list[grpc.Channel] = []
        for endpoint in options.endpoints:
            address = options.address(endpoint)
            if options.secure(endpoint):
                self._channels.append(grpc.secure_channel(address, options.credentials(), options=OPTIONS))
            else:
                self._channels.append(grpc.insecure_channel(address, options=OPTIONS))

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def grant(self, seconds: int, timeout: float) -> int:
        try:
            answer = self._stub().LeaseGrant(rpc.LeaseGrantRequest(TTL=seconds), timeout=timeout)
        except grpc.RpcError as error:
            raise self._failed(error) from None
        return int(answer.ID)

    def renew(self, lease: int, timeout: float) -> bool:
        """Whether the lease still lives; one stream per renewal, so that a deadline holds."""
        try:
            for answer in self._stub().LeaseKeepAlive(iter([rpc.LeaseKeepAliveRequest(ID=lease)]), timeout=timeout):
                return bool(answer.TTL > 0)
        except grpc.RpcError as error:
            raise self._failed(error) from None
        return False

    def revoke(self, lease: int, timeout: float) -> None:
        try:
            self._stub().LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease), timeout=timeout)
        except grpc.RpcError as error:
            translated = self._failed(error)
            if not isinstance(translated, errors.NotFound):
                raise translated from None

    def _stub(self) -> rpc.LeaseStub:
        return rpc.LeaseStub(self._channels[self._current])

    def _failed(self, error: grpc.RpcError) -> errors.ControlPlaneError:
        self._current = (self._current + 1) % len(self._channels)
        return translate(error, applies=False)
