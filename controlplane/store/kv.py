"""Reading and writing keys: etcd's KV and Lease services as the rest of the system uses them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import grpc
from aetcd import rpc

from controlplane.aio.clock import Clock
from controlplane.model.errors import Deposed, Unavailable
from controlplane.store import transaction
from controlplane.store.channel import HAS_LEADER, Channels, EtcdOptions
from controlplane.store.keys import ROOT, after_prefix, parse
from controlplane.store.transaction import Fence, Item, Outcome, Value

PAGE = 2000
# The size of a page in bytes. The number of keys is learned from earlier pages: the first page is small.
PAGE_BYTES = 4 << 20
_FIRST_PAGE = 16
_GROWTH = 4
_TOO_LATE = "DEADLINE_EXCEEDED"

# Transactions are encoded before they are sent.
TxnCall: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, rpc.TxnResponse]"


@dataclass(frozen=True, slots=True)
class KeyPage:
    revision: int
    values: tuple[Value, ...]


class Store:
    """The connection of a process to etcd. Every call has a deadline; the class of an error tells what happened."""

    def __init__(self, options: EtcdOptions, clock: Clock) -> None:
        self.channels = Channels(options, clock)
        self._calls: dict[grpc.aio.Channel, TxnCall] = {}

    async def close(self) -> None:
        await self.channels.close()

    async def get(self, key: str, *, revision: int = 0) -> Value | None:
        request = rpc.RangeRequest(key=key.encode(), revision=revision)
        answer = await self._range(request)
        return transaction.value_of(answer.kvs[0]) if answer.kvs else None

    async def pages(self, prefix: str = ROOT, *, revision: int = 0, keys_only: bool = False) -> AsyncIterator[KeyPage]:
        """Pages of all keys with the prefix, in key order, all at the same revision.

        A page that takes too long is asked for again with fewer keys. Values of a tree have about the same size, values
        of the next tree may be larger: every tree begins with a small page.
        """
        start, end = prefix.encode(), after_prefix(prefix)
        limit, until = _FIRST_PAGE, end
        while True:
            request = rpc.RangeRequest(key=start, range_end=until, limit=limit, revision=revision, keys_only=keys_only)
            try:
                answer = await self._range(request)
            except Unavailable as error:
                if limit == 1 or not str(error).startswith(_TOO_LATE):
                    raise
                limit = max(1, limit // _GROWTH)
                continue
            revision = revision or answer.header.revision
            yield KeyPage(revision, tuple(transaction.value_of(pair) for pair in answer.kvs))
            if not answer.more and until == end:
                return
            if answer.more:
                start = answer.kvs[-1].key + b"\0"
                limit, until = _next_limit(limit, answer), _end_of_tree(start, end)
            else:
                start, limit, until = until, _FIRST_PAGE, end

    async def _range(self, request: rpc.RangeRequest, timeout: float | None = None) -> rpc.RangeResponse:
        return await self.channels.read(
            lambda channel, left: rpc.KVStub(channel).Range(request, timeout=left, metadata=HAS_LEADER), timeout
        )

    async def revision(self, timeout: float | None = None) -> int:
        """The newest revision, read through the quorum."""
        answer = await self._range(rpc.RangeRequest(key=ROOT.encode(), count_only=True), timeout)
        return int(answer.header.revision)

    async def commit(self, item: Item, *, timeout: float | None = None) -> Outcome:
        answer = await self._txn(transaction.flat(item), timeout)
        return transaction.outcome(answer, item, answer.header.revision)

    async def commit_group(
        self, items: Sequence[Item], *, fence: Fence | None = None, timeout: float | None = None
    ) -> list[Outcome]:
        """All items in a single transaction, each with an outcome of its own; Deposed when the fence no longer holds.

        Creates are tried flat first, since new keys are nearly always absent: a flat group happens as a whole or not at
        all.
        """
        if fence is None and len(items) > 1 and all(item.creates for item in items):
            answer = await self._txn(transaction.flat_group(items), timeout)
            if answer.succeeded:
                return [Outcome(True, answer.header.revision)] * len(items)
        answer = await self._txn(transaction.nested(items, fence), timeout)
        if not answer.succeeded:
            raise Deposed(f"epoch {fence.epoch if fence else 0} no longer leads: etcd refused its write")
        return transaction.outcomes(answer, items)

    async def _txn(self, request: bytes, timeout: float | None) -> rpc.TxnResponse:
        return await self.channels.write(
            lambda channel, left: self._call(channel)(request, timeout=left, metadata=HAS_LEADER), timeout
        )

    def _call(self, channel: grpc.aio.Channel) -> TxnCall:
        """A call object per channel: making a call object costs as much as a small transaction."""
        call = self._calls.get(channel)
        if call is None:
            call = self._calls[channel] = channel.unary_unary(
                "/etcdserverpb.KV/Txn", response_deserializer=rpc.TxnResponse.FromString
            )
        return call

    async def grant(self, seconds: int) -> int:
        request = rpc.LeaseGrantRequest(TTL=seconds)
        answer = await self.channels.write(
            lambda channel, left: rpc.LeaseStub(channel).LeaseGrant(request, timeout=left, metadata=HAS_LEADER)
        )
        return int(answer.ID)

    async def revoke(self, lease: int) -> None:
        """Idempotent: NotFound for a lease that is gone means that the work is done."""
        request = rpc.LeaseRevokeRequest(ID=lease)
        await self.channels.read(
            lambda channel, left: rpc.LeaseStub(channel).LeaseRevoke(request, timeout=left, metadata=HAS_LEADER)
        )

    async def granted_seconds(self, lease: int) -> int:
        """The time for which the lease was granted; 0 when the lease is gone."""
        request = rpc.LeaseTimeToLiveRequest(ID=lease)
        answer = await self.channels.read(
            lambda channel, left: rpc.LeaseStub(channel).LeaseTimeToLive(request, timeout=left)
        )
        return int(answer.grantedTTL) if answer.TTL > 0 else 0

    async def compact(self, revision: int) -> None:
        request = rpc.CompactionRequest(revision=revision)
        await self.channels.read(lambda channel, left: rpc.KVStub(channel).Compact(request, timeout=left))


def _next_limit(limit: int, answer: rpc.RangeResponse) -> int:
    """The number of keys of this size in a page. Grows in steps, since the following values may be larger."""
    size = int(answer.ByteSize()) // len(answer.kvs) + 1
    return max(1, min(PAGE_BYTES // size, limit * _GROWTH, PAGE))


def _end_of_tree(key: bytes, end: bytes) -> bytes:
    """The end of the tree of this key, or the end of the list."""
    place = parse(key.decode(errors="replace").rstrip("\0"))
    return min(after_prefix(place[0].prefix), end) if place is not None else end
