"""Transactions: compares, operations, the items of a group, and the Fence that a leader's write carries.

An Item is what stays together: its compares and what happens when they hold. A group of items travels as one
transaction in which each item is nested with its own compares, so that one refused item leaves the others alone.
The limits of etcd are checked before anything is sent, and nothing is ever split silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from aetcd import rpc

from controlplane.model.errors import LimitExceeded
from controlplane.store.keys import after_prefix

MAX_OPERATIONS = 128
MAX_GROUP = 100
MAX_BYTES = 1 << 20

# etcd's own messages, which come without types.
Compare: TypeAlias = Any
Operation: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Fence:
    """Proof of leadership that a write must carry.

    Names the leader key, the revision at which it was created (the epoch) and its mod revision. The transaction
    compares the latter, so a deposed leader's write is refused by etcd itself, however slow, paused or wrong about
    the time the process was, and so is a write of this leader that was sent before it rewrote its own key.
    """

    key: str
    epoch: int
    mod_revision: int

    def compare(self) -> Compare:
        return mod_is(self.key, self.mod_revision)


def put(key: str, value: bytes, *, lease: int = 0) -> Operation:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key.encode(), value=value, lease=lease))


def delete(key: str) -> Operation:
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key.encode()))


def delete_prefix(prefix: str) -> Operation:
    request = rpc.DeleteRangeRequest(key=prefix.encode(), range_end=after_prefix(prefix))
    return rpc.RequestOp(request_delete_range=request)


def get(key: str) -> Operation:
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key.encode()))


def absent(key: str) -> Compare:
    return rpc.Compare(result=rpc.Compare.EQUAL, target=rpc.Compare.CREATE, key=key.encode(), create_revision=0)


def present(key: str) -> Compare:
    return rpc.Compare(result=rpc.Compare.GREATER, target=rpc.Compare.CREATE, key=key.encode(), create_revision=0)


def mod_is(key: str, revision: int) -> Compare:
    """The key was last written at that revision; 0 stands for a key that is not there."""
    return rpc.Compare(result=rpc.Compare.EQUAL, target=rpc.Compare.MOD, key=key.encode(), mod_revision=revision)


def lease_is(key: str, lease: int) -> Compare:
    return rpc.Compare(result=rpc.Compare.EQUAL, target=rpc.Compare.LEASE, key=key.encode(), lease=lease)


@dataclass(frozen=True, slots=True)
class Item:
    compares: tuple[Compare, ...] = ()
    then: tuple[Operation, ...] = ()
    otherwise: tuple[Operation, ...] = ()
    _measure: tuple[int, frozenset[bytes]] | None = field(default=None, init=False, compare=False, repr=False)

    def weight(self) -> int:
        """The most operations that one of its branches or its compares hold."""
        return max(len(self.compares), len(self.then), len(self.otherwise))

    def size(self) -> int:
        return self._measured()[0]

    def written(self) -> frozenset[bytes]:
        """The keys that it may put or delete, for telling apart items that cannot share a transaction."""
        return self._measured()[1]

    def _measured(self) -> tuple[int, frozenset[bytes]]:
        """Asked several times on its way into a group, measured once."""
        if self._measure is None:
            size = sum(int(operation.ByteSize()) for operation in self.then) + 64 * len(self.compares)
            object.__setattr__(self, "_measure", (size, self._keys()))
        assert self._measure is not None
        return self._measure

    def _keys(self) -> frozenset[bytes]:
        keys: set[bytes] = set()
        for operation in (*self.then, *self.otherwise):
            if operation.HasField("request_put"):
                keys.add(operation.request_put.key)
            elif operation.HasField("request_delete_range"):
                keys.add(operation.request_delete_range.key)
        return frozenset(keys)


class Value(NamedTuple):
    """One key as read: its value and the revisions and lease it was written with."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int


class Outcome(NamedTuple):
    """What became of an item. `found` holds what the gets of the branch taken returned, in their order."""

    succeeded: bool
    revision: int
    found: tuple[Value | None, ...] = ()


def flat(item: Item) -> rpc.TxnRequest:
    _check(item, MAX_OPERATIONS)
    return rpc.TxnRequest(compare=item.compares, success=item.then, failure=item.otherwise)


def nested(items: Sequence[Item], fence: Fence | None) -> rpc.TxnRequest:
    """One transaction with every item nested; with a fence, nothing of it happens unless the fence holds."""
    if not items:
        raise LimitExceeded("a group needs at least one item")
    for item in items:
        _check(item, MAX_OPERATIONS - len(items))
    if len(items) > 1 and sum(item.size() for item in items) > MAX_BYTES:
        raise LimitExceeded(f"a group must not be above {MAX_BYTES} bytes")
    request = rpc.TxnRequest(compare=[fence.compare()] if fence else [], failure=[get(fence.key)] if fence else [])
    for item in items:
        # Built in place: a message that is put into another is copied with all that it holds.
        inner = request.success.add().request_txn
        inner.compare.extend(item.compares)
        inner.success.extend(item.then)
        inner.failure.extend(item.otherwise)
    return request


def _check(item: Item, most: int) -> None:
    if item.weight() > most:
        raise LimitExceeded(f"a transaction must not hold more than {most} operations here, but has {item.weight()}")
    if item.size() > MAX_BYTES:
        raise LimitExceeded(f"a transaction must not be above {MAX_BYTES} bytes, but has {item.size()}")


def outcome(response: rpc.TxnResponse, revision: int) -> Outcome:
    found = tuple(
        value_of(answer.response_range.kvs[0]) if answer.response_range.kvs else None
        for answer in response.responses
        if answer.HasField("response_range")
    )
    return Outcome(response.succeeded, revision, found)


def outcomes(response: rpc.TxnResponse) -> list[Outcome]:
    revision = response.header.revision
    return [outcome(answer.response_txn, revision) for answer in response.responses]


def value_of(pair: rpc.KeyValue) -> Value:
    return Value(pair.key.decode(errors="replace"), pair.value, pair.create_revision, pair.mod_revision, pair.lease)


def front(items: Sequence[Item]) -> int:
    """How many items, from the first on, etcd takes as one group; at least one. Items are never split."""
    keys: set[bytes] = set()
    size = heaviest = 0
    for count, item in enumerate(items):
        written = item.written()
        heaviest = max(heaviest, item.weight())
        size += item.size()
        crowded = count + 1 > MAX_GROUP or heaviest > MAX_OPERATIONS - count - 1 or size > MAX_BYTES
        if count and (crowded or keys & written):
            return count
        keys |= written
    return len(items)
