"""Entries and snapshots: what was in etcd at one revision, without copying it.

Trees are persistent maps: a new revision shares all but what changed with the one before, so that a snapshot is free
to take and stays as it is for as long as somebody holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from immutables import Map

from controlplane.model.errors import Broken
from controlplane.store import keys, places
from controlplane.store.transaction import Value

S = TypeVar("S", bound=msgspec.Struct)
Tree = Map[str, Any]

OTHER = ""
_EMPTY: Tree = Map()


class Entry(msgspec.Struct, eq=False, gc=False):
    """One key. `read` decodes each time, `object` keeps what it decoded; both raise Broken on poison: a value of
    another type, one that is not sane, or one that belongs under another key.

    Made for every key that anybody writes, and kept in great numbers: not for the garbage collector.
    """

    tree: str
    parts: tuple[str, ...]
    stored: Value
    _object: msgspec.Struct | None = None
    # Why the value is poison, once somebody found out: whoever looks again and again must not decode it each time.
    _fault: str = ""

    def read(self, kind: type[S]) -> S:
        if self._fault:
            raise Broken(self._fault)
        try:
            return places.read(self.stored, kind, self.tree, self.parts)
        except Broken as error:
            self._fault = str(error)
            raise

    def object(self, kind: type[S]) -> S:
        if self._object is None:
            self._object = self.read(kind)
        assert isinstance(self._object, kind)
        return self._object

    def sound(self, kind: type[S]) -> S | None:
        """Like `object`, but None for poison, which readers of many entries step over."""
        if self._fault:
            return None
        try:
            return self.object(kind)
        except Broken:
            return None

    @property
    def revision(self) -> int:
        return self.stored.mod_revision


@dataclass(frozen=True, slots=True)
class Snapshot:
    revision: int
    trees: Mapping[str, Tree]

    def get(self, tree: str, *parts: str) -> Entry | None:
        node: Any = self.trees.get(tree, _EMPTY)
        for part in parts:
            node = node.get(part)
            if node is None:
                return None
        return node if isinstance(node, Entry) else None

    def names(self, tree: str) -> Iterator[str]:
        return iter(self.trees.get(tree, _EMPTY))

    def all(self, tree: str, *front: str) -> Iterator[Entry]:
        """Every entry of the tree, or of the part of it below `front`, in no particular order."""
        node: Any = self.trees.get(tree, _EMPTY)
        for part in front:
            node = node.get(part, _EMPTY)
        yield from _entries(node)

    def has(self, tree: str, front: str) -> bool:
        return front in self.trees.get(tree, _EMPTY)

    def count(self, tree: str, *front: str) -> int:
        node: Any = self.trees.get(tree, _EMPTY)
        for part in front:
            node = node.get(part, _EMPTY)
        return len(node)

    def everything(self) -> Iterator[Entry]:
        for tree in self.trees.values():
            yield from _entries(tree)


def _entries(node: Tree) -> Iterator[Entry]:
    for value in node.values():
        if isinstance(value, Entry):
            yield value
        else:
            yield from _entries(value)


def entry_of(stored: Value) -> Entry:
    parsed = keys.parse(stored.key)
    tree, parts = parsed if parsed is not None else (OTHER, (stored.key,))
    return Entry(tree, parts, stored)


def place_of(key: str) -> tuple[str, tuple[str, ...]]:
    parsed = keys.parse(key)
    return parsed if parsed is not None else (OTHER, (key,))


def with_entry(tree: Tree, parts: tuple[str, ...], entry: Entry) -> Tree:
    if len(parts) == 1:
        return tree.set(parts[0], entry)
    return tree.set(parts[0], with_entry(tree.get(parts[0], _EMPTY), parts[1:], entry))


def without(tree: Tree, parts: tuple[str, ...]) -> Tree:
    if parts[0] not in tree:
        return tree
    if len(parts) == 1:
        return tree.delete(parts[0])
    inner = without(tree[parts[0]], parts[1:])
    return tree.set(parts[0], inner) if inner else tree.delete(parts[0])
