"""Entries and snapshots: the keys of etcd at a revision, and typed accessors to the objects under the keys.

Trees are persistent maps: a snapshot shares all unchanged entries with the snapshot before, so that taking a snapshot
is free and a snapshot never changes. An accessor such as `order_status` gives the object, or None when the key is
absent or the value is poison. To compare revisions, take the entry instead: `get(keys.ORDER_STATUS, id)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from immutables import Map

from controlplane.model.errors import Broken
from controlplane.model.leadership import Term
from controlplane.model.target import Live
from controlplane.store import codec, keys
from controlplane.store.keys import Single, Tree
from controlplane.store.transaction import Value

S = TypeVar("S", bound=msgspec.Struct)
# The entries of a tree by the first part of their keys; in a tree with two parts, maps by the second part.
Branch = Map[str, Any]

OTHER = ""
_EMPTY: Branch = Map()


class Entry(msgspec.Struct, Generic[S], eq=False, gc=False):
    """A key and its value. `read` decodes each time, `object` keeps the decoded object; both raise Broken on poison: a
    value of another type, an insane value, or a value that belongs under another key.

    There are as many entries as keys, so that entries are kept from the garbage collector.
    """

    tree: str
    parts: tuple[str, ...]
    stored: Value
    _object: S | None = None
    # The fault of a poisoned value, once decoded: poison that is read often is not decoded each time.
    _fault: str = ""

    def read(self) -> S:
        if self._fault:
            raise Broken(self._fault)
        rule = keys.rule_of(self.tree, self.parts)
        try:
            if rule is None:
                raise Broken("a key that holds no object")
            item: Any = codec.decode(self.stored.value, rule.struct)
            codec.check_place(item, self.tree, self.parts, rule)
        except Broken as error:
            self._fault = str(error)
            raise
        return item  # type: ignore[no-any-return]

    def object(self) -> S:
        if self._object is None:
            self._object = self.read()
        return self._object

    def readable(self) -> S | None:
        """Like `object`, but None for poison, which readers of many entries step over."""
        if self._object is None and not self._fault:
            try:
                self._object = self.read()
            except Broken:
                return None
        return self._object

    @property
    def revision(self) -> int:
        return self.stored.mod_revision


def _by_name(tree: Tree[S]) -> Callable[[Snapshot, str], S | None]:
    """The accessor of a tree with one part."""

    def read(self: Snapshot, name: str) -> S | None:
        entry: Entry[S] | None = self.trees.get(tree, _EMPTY).get(name)
        return entry.readable() if entry is not None else None

    return read


def _by_two_names(tree: Tree[S]) -> Callable[[Snapshot, str, str], S | None]:
    """The accessor of a tree with two parts."""

    def read(self: Snapshot, first: str, second: str) -> S | None:
        branch = self.trees.get(tree, _EMPTY).get(first)
        entry: Entry[S] | None = branch.get(second) if branch is not None else None
        return entry.readable() if entry is not None else None

    return read


def _single(single: Single[S]) -> Callable[[Snapshot], S | None]:
    """The accessor of a single key."""
    tree, name = single.place

    def read(self: Snapshot) -> S | None:
        entry: Entry[S] | None = self.trees.get(tree, _EMPTY).get(name)
        return entry.readable() if entry is not None else None

    return read


@dataclass(frozen=True, slots=True)
class Snapshot:
    revision: int
    trees: Mapping[str, Branch]

    # The object under a key, by the parts of the key; None when absent or poison. Objects are kept decoded.
    order = _by_name(keys.ORDERS)
    order_status = _by_name(keys.ORDER_STATUS)
    job = _by_name(keys.JOBS)
    packet = _by_name(keys.PACKETS)
    resource = _by_name(keys.RESOURCES)
    target = _by_name(keys.TARGETS)
    target_status = _by_name(keys.TARGET_STATUS)
    rule = _by_name(keys.RULES)
    scale_policy = _by_name(keys.SCALE_POLICIES)
    scaling = _by_name(keys.SCALING)
    made = _by_name(keys.MADE)
    secret = _by_name(keys.SECRETS)
    hosting = _by_name(keys.HOSTING)
    claim = _by_name(keys.CLAIMS)
    event = _by_name(keys.EVENTS)
    # (target, fulfilment)
    fulfilment = _by_two_names(keys.DESIRED)
    report = _by_two_names(keys.INVENTORY)
    cluster_status = _single(keys.CLUSTER_STATUS)
    archive_status = _single(keys.ARCHIVE_STATUS)
    totals = _single(keys.TOTALS)
    isolation = _single(keys.ISOLATED)
    resume = _single(keys.RESTORE)

    def live(self, target: str) -> Live | None:
        """The live record of a target: present while the target's joblet has a session."""
        entry = self.live_entry(target)
        return entry.readable() if entry is not None else None

    def live_entry(self, target: str) -> Entry[Live] | None:
        reports = self.trees.get(keys.INVENTORY, _EMPTY).get(target)
        return reports.get(keys.LIVE) if reports is not None else None

    def term(self, epoch: int) -> Term | None:
        entry = self.get(keys.TERMS, keys.padded(epoch))
        return entry.readable() if entry is not None else None

    def get(self, tree: Tree[S], *parts: str) -> Entry[S] | None:
        node: Any = self.trees.get(tree, _EMPTY)
        for part in parts:
            node = node.get(part)
            if node is None:
                return None
        return node if isinstance(node, Entry) else None

    def single(self, single: Single[S]) -> Entry[S] | None:
        tree, name = single.place
        entry: Entry[S] | None = self.trees.get(tree, _EMPTY).get(name)
        return entry

    def names(self, tree: Tree[Any]) -> Iterator[str]:
        return iter(self.trees.get(tree, _EMPTY))

    def all(self, tree: Tree[S], *front: str) -> Iterator[Entry[S]]:
        """Every entry of the tree, or of the branch below `front`, in no particular order."""
        node: Any = self.trees.get(tree, _EMPTY)
        for part in front:
            node = node.get(part, _EMPTY)
        yield from _entries(node)

    def objects(self, tree: Tree[S], *front: str) -> Iterator[S]:
        """Every readable object of the tree, or of the branch below `front`."""
        for entry in self.all(tree, *front):
            item = entry.readable()
            if item is not None:
                yield item

    def has(self, tree: Tree[Any], *parts: str) -> bool:
        """Whether the key is present, readable or not; with the first of two parts: any key below."""
        node: Any = self.trees.get(tree, _EMPTY)
        for part in parts:
            node = node.get(part)
            if node is None:
                return False
        return True

    def revision_of(self, tree: Tree[Any], *parts: str) -> int:
        """The mod revision of the key, which a write compares; 0 when the key is absent."""
        entry = self.get(tree, *parts)
        return entry.revision if entry is not None else 0

    def count(self, tree: Tree[Any], *front: str) -> int:
        node: Any = self.trees.get(tree, _EMPTY)
        for part in front:
            node = node.get(part, _EMPTY)
        return len(node)

    def everything(self) -> Iterator[Entry[Any]]:
        for tree in self.trees.values():
            yield from _entries(tree)


def _entries(node: Branch) -> Iterator[Entry[Any]]:
    for value in node.values():
        if isinstance(value, Entry):
            yield value
        else:
            yield from _entries(value)


def place_of(key: str) -> tuple[str, tuple[str, ...]]:
    parsed = keys.parse(key)
    return parsed if parsed is not None else (OTHER, (key,))
