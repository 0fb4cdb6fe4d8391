"""Leases: renewed on a shared stream (sessions of joblets), or by blocking calls from a thread (the election).

`Renewals` renews a lease only on request, and says whether the lease was still there. `BlockingLease` serves the
election's thread, which must go on while the event loop is busy: a channel of its own, and no event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

import grpc
from aetcd import rpc

from controlplane.model import errors
from controlplane.store.channel import HAS_LEADER, OPTIONS, Channels, EtcdOptions, translate


class Renewals:
    """The keep-alive stream of all leases that this process renews; opened anew after a failure.

    etcd answers each request once and in order, so that an answer belongs to the oldest request for its lease: an
    answer to an earlier request, given up by the caller meanwhile, never confirms a later request.
    """

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._outbox: asyncio.Queue[int] = asyncio.Queue()
        self._waiting: dict[int, deque[asyncio.Future[bool]]] = {}
        self._answers = 0
        self._silent = asyncio.Event()

    async def renew(self, lease: int, timeout: float) -> bool:
        """True when the lease lives on; False when the lease is gone; Unavailable when etcd did not answer in time.

        A stream without any answer meanwhile is left for the next endpoint, if there are several.
        """
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(lease, deque()).append(future)
        self._outbox.put_nowait(lease)
        answers = self._answers
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            if answers == self._answers and len(self._channels.every()) > 1:
                self._silent.set()
            raise errors.Unavailable("etcd did not answer a lease renewal in time") from None

    async def run(self) -> None:
        while True:
            channel = self._channels.current()
            call = rpc.LeaseStub(channel).LeaseKeepAlive(metadata=HAS_LEADER)
            self._silent.clear()
            asking = asyncio.create_task(self._ask(call, self._outbox))
            reading = asyncio.create_task(self._read(call))
            silence = asyncio.create_task(self._silent.wait())
            try:
                await asyncio.wait({reading, silence}, return_when=asyncio.FIRST_COMPLETED)
                why = reading.result() if reading.done() else "etcd answers no lease renewals"
            finally:
                for task in (asking, reading, silence):
                    task.cancel()
                call.cancel()
                await asyncio.wait({asking, reading, silence})
            self._channels.leave(channel)
            self._fail(why)
            await asyncio.sleep(0.05)

    async def _read(self, call: Any) -> str:
        """Hands answers to the waiting callers; returns the reason for which the stream ended."""
        try:
            while (answer := await call.read()) is not grpc.aio.EOF:
                self._answers += 1
                self._answered(answer.ID, answer.TTL > 0)
        except grpc.aio.AioRpcError as error:
            return str(translate(error, applies=False))
        return "etcd ended the stream of renewals"

    def _answered(self, lease: int, alive: bool) -> None:
        asked = self._waiting.get(lease)
        if not asked:
            return
        future = asked.popleft()
        if not asked:
            del self._waiting[lease]
        if not future.done():
            future.set_result(alive)

    def _fail(self, why: str) -> None:
        # Requests that were not sent yet must not go to the next stream: no caller waits there for the answers.
        self._outbox = asyncio.Queue()
        waiting, self._waiting = self._waiting, {}
        for future in (future for futures in waiting.values() for future in futures):
            if not future.done():
                future.set_exception(errors.Unavailable(why))

    @staticmethod
    async def _ask(call: Any, outbox: asyncio.Queue[int]) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader gets the same error, and acts
            while True:
                await call.write(rpc.LeaseKeepAliveRequest(ID=await outbox.get()))


class BlockingLease:
    """Grant, renew and revoke by blocking calls, from a single thread. Tries the endpoints in turn."""

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._current = 0
        self._channels: list[grpc.Channel] = []
        self._generation = 0
        self._open_all()

    def _open_all(self) -> None:
        self.close()
        self._generation = self._options.generation
        self._channels = [self._open(endpoint) for endpoint in self._options.endpoints]

    def _open(self, endpoint: str) -> grpc.Channel:
        address = self._options.address(endpoint)
        if self._options.secure(endpoint):
            return grpc.secure_channel(address, self._options.credentials(), options=OPTIONS)
        return grpc.insecure_channel(address, options=OPTIONS)

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def grant(self, seconds: int, timeout: float) -> int:
        try:
            answer = self._stub().LeaseGrant(rpc.LeaseGrantRequest(TTL=seconds), timeout=timeout, metadata=HAS_LEADER)
        except grpc.RpcError as error:
            raise self._failed(error) from None
        return int(answer.ID)

    def renew(self, lease: int, timeout: float) -> bool:
        """Whether the lease still lives; a stream per renewal, so that a deadline holds."""
        try:
            requests = iter([rpc.LeaseKeepAliveRequest(ID=lease)])
            for answer in self._stub().LeaseKeepAlive(requests, timeout=timeout, metadata=HAS_LEADER):
                return bool(answer.TTL > 0)
        except grpc.RpcError as error:
            raise self._failed(error) from None
        return False

    def revoke(self, lease: int, timeout: float) -> None:
        try:
            self._stub().LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease), timeout=timeout, metadata=HAS_LEADER)
        except grpc.RpcError as error:
            translated = self._failed(error)
            if not isinstance(translated, errors.NotFound):
                raise translated from None

    def _stub(self) -> rpc.LeaseStub:
        # Every call ends before the next begins, so no call is cut off by new TLS files.
        if self._generation != self._options.generation:
            self._open_all()
        return rpc.LeaseStub(self._channels[self._current])

    def _failed(self, error: grpc.RpcError) -> errors.ControlPlaneError:
        self._current = (self._current + 1) % len(self._channels)
        return translate(error, applies=False)
