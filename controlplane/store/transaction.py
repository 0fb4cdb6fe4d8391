"""Transactions: compares, operations, items, groups of items, and the Fence of a leader's write.

An Item stays together: compares, and operations that happen when the compares hold. A group of items travels in a
single transaction in which each item is nested with its own compares, so that a refused item leaves the others alone.
The limits of etcd are checked before anything is sent, and no item is ever split silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from aetcd import rpc

from controlplane.model.errors import LimitExceeded
from controlplane.store import encoding
from controlplane.store.keys import after_prefix

MAX_OPERATIONS = 128
MAX_GROUP = 100
MAX_BYTES = 1 << 20

# A compare as bytes.
Compare: TypeAlias = bytes


class Operation(NamedTuple):
    """An operation as bytes, with the key, whether the key is written, and the value."""

    raw: bytes
    key: bytes
    writes: bool
    value: bytes | None = None


@dataclass(frozen=True, slots=True)
class Fence:
    """Proof of leadership that a write must carry.

    A Fence names the leader key, the key's create revision (the epoch) and its mod revision. The transaction compares
    the mod revision, so that etcd itself refuses the write of a deposed leader, however slow, paused or wrong about the
    time the process was; and also a write of this leader from before the leader rewrote its own key.
    """

    key: str
    epoch: int
    mod_revision: int

    def compare(self) -> Compare:
        return mod_is(self.key, self.mod_revision)


def put(key: str, value: bytes, *, lease: int = 0) -> Operation:
    name = key.encode()
    return Operation(encoding.put(name, value, lease), name, True, value)


def delete(key: str) -> Operation:
    name = key.encode()
    return Operation(encoding.delete(name), name, True)


def get(key: str) -> Operation:
    name = key.encode()
    return Operation(encoding.get(name), name, False)


def absent(key: str) -> Compare:
    return encoding.created(key.encode(), 0)


def present(key: str) -> Compare:
    return encoding.created(key.encode(), 0, greater=True)


def nothing_below(prefix: str) -> Compare:
    """No key with this prefix exists."""
    return encoding.created_below(prefix.encode(), after_prefix(prefix), 0)


def unchanged_below(prefix: str, revision: int) -> Compare:
    """Every key with this prefix is as it was at the revision. Keys that were deleted since then are not compared."""
    return encoding.modified_below(prefix.encode(), after_prefix(prefix), revision + 1)


def mod_is(key: str, revision: int) -> Compare:
    """The key was last written at the revision; 0 stands for an absent key."""
    return encoding.modified(key.encode(), revision)


def lease_is(key: str, lease: int) -> Compare:
    return encoding.leased(key.encode(), lease)


@dataclass(slots=True)
class Item:
    """Immutable by convention: an item is encoded when first measured, and sent in this form.

    `many` are operations beyond the size of a flat transaction; they are nested, and happen together with `then`.
    """

    compares: tuple[Compare, ...] = ()
    then: tuple[Operation, ...] = ()
    otherwise: tuple[Operation, ...] = ()
    many: tuple[Operation, ...] = ()
    # Names of the objects concerned, for reports of a failure; not sent.
    about: tuple[str, ...] = field(default=(), compare=False)
    # Whether the item only creates a key.
    creates: bool = field(default=False, init=False, compare=False, repr=False)
    _raw: bytes = field(default=b"", init=False, compare=False, repr=False)
    _weight: int = field(default=-1, init=False, compare=False, repr=False)

    def weight(self) -> int:
        """The size of the largest branch, or of the compares, in operations."""
        if self._weight < 0:
            nests = -(-len(self.many) // MAX_GROUP)
            self._weight = max(len(self.compares), len(self.then) + nests, len(self.otherwise))
        return self._weight

    def size(self) -> int:
        return len(self.raw())

    def raw(self) -> bytes:
        """The whole item as a transaction."""
        if not self._raw:
            self._raw = encoding.transaction(
                self.compares,
                [operation.raw for operation in self.then] + self._nests(),
                [operation.raw for operation in self.otherwise],
            )
        return self._raw

    def _nests(self) -> list[bytes]:
        chunks = (self.many[at : at + MAX_GROUP] for at in range(0, len(self.many), MAX_GROUP))
        return [
            encoding.nested(encoding.transaction((), [operation.raw for operation in chunk], ())) for chunk in chunks
        ]

    def written(self) -> list[bytes]:
        """The keys that the item may put or delete: items that write the same key cannot share a transaction."""
        written = [operation.key for operation in self.then if operation.writes]
        if self.otherwise or self.many:
            written += [operation.key for operation in (*self.otherwise, *self.many) if operation.writes]
        return written


def create_item(key: str, value: bytes) -> Item:
    """Puts an absent key; gets the key if present."""
    name = key.encode()
    compare, putting, getting, raw = encoding.creation(name, value)
    item = Item((compare,), (Operation(putting, name, True, value),), (Operation(getting, name, False),))
    item._raw, item._weight, item.creates = raw, 1, True
    return item


def together(items: Sequence[Item]) -> Item:
    """An item with all compares and operations of these items: all of them happen, or none."""
    return Item(
        compares=tuple(compare for item in items for compare in item.compares),
        then=tuple(operation for item in items for operation in item.then),
        many=tuple(operation for item in items for operation in item.many),
    )


class Value(NamedTuple):
    """A key as read: the value, and the revisions and the lease of the last write."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int


class Outcome(NamedTuple):
    """The outcome of an item. `found` holds the answers to the gets of the branch taken, in order."""

    succeeded: bool
    revision: int
    found: tuple[Value | None, ...] = ()


def flat(item: Item) -> bytes:
    _check(item, MAX_OPERATIONS)
    return item.raw()


def nested(items: Sequence[Item], fence: Fence | None) -> bytes:
    """A transaction with every item nested; with a fence, no item happens unless the fence holds."""
    if not items:
        raise LimitExceeded("a group needs at least one item")
    for item in items:
        _check(item, MAX_OPERATIONS - len(items))
    if len(items) > 1 and sum(item.size() for item in items) > MAX_BYTES:
        raise LimitExceeded(f"a group must not be above {MAX_BYTES} bytes")
    inner = [encoding.nested(item.raw()) for item in items]
    if fence is None:
        return encoding.transaction((), inner, ())
    return encoding.transaction([fence.compare()], inner, [get(fence.key).raw])


def flat_group(items: Sequence[Item]) -> bytes:
    """All items happen, or none. Cheaper than nesting for etcd and for callers, where all are likely to happen."""
    compares = [compare for item in items for compare in item.compares]
    raw = encoding.transaction(compares, [operation.raw for item in items for operation in item.then], ())
    if len(items) > MAX_GROUP or len(raw) > MAX_BYTES:
        raise LimitExceeded(f"a group must not be above {MAX_GROUP} items or {MAX_BYTES} bytes")
    return raw


def check(item: Item) -> None:
    """LimitExceeded for an item that etcd would not even take alone."""
    _check(item, MAX_OPERATIONS - 1)


def _check(item: Item, most: int) -> None:
    if item.weight() > most:
        raise LimitExceeded(f"a transaction must not hold more than {most} operations here, but has {item.weight()}")
    if item.size() > MAX_BYTES:
        raise LimitExceeded(f"a transaction must not be above {MAX_BYTES} bytes, but has {item.size()}")


def outcome(response: rpc.TxnResponse, item: Item, revision: int) -> Outcome:
    succeeded = response.succeeded
    for operation in item.then if succeeded else item.otherwise:
        if not operation.writes:
            break
    else:
        # Most writes read no key, and their answers hold none.
        return Outcome(succeeded, revision)
    values = tuple(
        value_of(answer.response_range.kvs[0]) if answer.response_range.kvs else None
        for answer in response.responses
        if answer.HasField("response_range")
    )
    return Outcome(succeeded, revision, values)


def outcomes(response: rpc.TxnResponse, items: Sequence[Item]) -> list[Outcome]:
    revision = response.header.revision
    return [
        outcome(answer.response_txn, item, revision) for answer, item in zip(response.responses, items, strict=True)
    ]


def value_of(pair: rpc.KeyValue) -> Value:
    return Value(pair.key.decode(errors="replace"), pair.value, pair.create_revision, pair.mod_revision, pair.lease)


def group_size(items: Sequence[Item]) -> int:
    """The number of items, from the first on, that etcd takes as a group; at least 1. Items are never split."""
    keys: set[bytes] = set()
    size = heaviest = 0
    for count, item in enumerate(items):
        written = item.written()
        heaviest = max(heaviest, item.weight())
        size += item.size()
        crowded = count + 1 > MAX_GROUP or heaviest > MAX_OPERATIONS - count - 1 or size > MAX_BYTES
        if count and (crowded or not keys.isdisjoint(written)):
            return count
        keys.update(written)
    return len(items)
