"""Reading and writing keys: the calls of etcd's KV and Lease services as the rest of the system uses them."""

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
# A page is to have about so many bytes. How many keys that are is learned from the pages before: the first is small.
PAGE_BYTES = 4 << 20
_FIRST_PAGE = 16
_GROWTH = 4
_TOO_LATE = "DEADLINE_EXCEEDED"

# Transactions are encoded before they are sent.
TxnCall: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, rpc.TxnResponse]"


@dataclass(frozen=True, slots=True)
class Page:
    revision: int
    values: tuple[Value, ...]


class Store:
    """One process's way to etcd. Every call has a deadline; what its failure means is said by the error's class."""

    def __init__(self, options: EtcdOptions, clock: Clock) -> None:
        self.channels = Channels(options, clock)
        self._calls: dict[grpc.aio.Channel, TxnCall] = {}

    async def close(self) -> None:
        await self.channels.close()

    async def get(self, key: str, *, revision: int = 0) -> Value | None:
        request = rpc.RangeRequest(key=key.encode(), revision=revision)
        answer = await self._range(request)
        return transaction.value_of(answer.kvs[0]) if answer.kvs else None

    async def pages(self, prefix: str = ROOT, *, revision: int = 0, keys_only: bool = False) -> AsyncIterator[Page]:
        """Pages of all keys with the prefix, in key order, all at one revision.

        A page that takes too long is asked for again with fewer keys. Values of one tree are of about one size, those
        of the next may be of another: a tree begins with a small page.
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
            yield Page(revision, tuple(transaction.value_of(pair) for pair in answer.kvs))
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
        """All items in one transaction, each with its own outcome. With a fence that no longer holds: Deposed.

        New keys, which nearly always are new, are put side by side first: nothing of that happens if one is there.
        """
        if fence is None and len(items) > 1 and all(item.creates for item in items):
            answer = await self._txn(transaction.side_by_side(items), timeout)
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
        """One for each channel: making it costs as much as a small transaction."""
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
        """Idempotent: a lease that is gone raises NotFound, which says that the work is done."""
        request = rpc.LeaseRevokeRequest(ID=lease)
        await self.channels.read(
            lambda channel, left: rpc.LeaseStub(channel).LeaseRevoke(request, timeout=left, metadata=HAS_LEADER)
        )

    async def granted_seconds(self, lease: int) -> int:
        """For how long the lease was granted; 0 when it is gone."""
        request = rpc.LeaseTimeToLiveRequest(ID=lease)
        answer = await self.channels.read(
            lambda channel, left: rpc.LeaseStub(channel).LeaseTimeToLive(request, timeout=left)
        )
        return int(answer.grantedTTL) if answer.TTL > 0 else 0

    async def compact(self, revision: int) -> None:
        request = rpc.CompactionRequest(revision=revision)
        await self.channels.read(lambda channel, left: rpc.KVStub(channel).Compact(request, timeout=left))

    async def version(self) -> str:
        request = rpc.StatusRequest()
        answer = await self.channels.read(
            lambda channel, left: rpc.MaintenanceStub(channel).Status(request, timeout=left)
        )
        return str(answer.version)


def _next_limit(limit: int, answer: rpc.RangeResponse) -> int:
    """How many keys of the size of these make a page; not many more at once, since those that follow may be larger."""
    size = int(answer.ByteSize()) // len(answer.kvs) + 1
    return max(1, min(PAGE_BYTES // size, limit * _GROWTH, PAGE))


def _end_of_tree(key: bytes, end: bytes) -> bytes:
    """Behind the last key of the tree that this key belongs to, or the end of the list."""
    place = parse(key.decode(errors="replace").rstrip("\0"))
    return min(after_prefix(f"{ROOT}{place[0]}/"), end) if place is not None else end
