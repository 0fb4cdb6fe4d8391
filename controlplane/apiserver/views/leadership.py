"""Cycles and terms: what the leaders wrote down, in key order, oldest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controlplane.apiserver.reading import object_of
from controlplane.apiserver.views.view import Filter, sorted_after
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Snapshot
from controlplane.model.leadership import Cycle, Term
from controlplane.wire import convert
from controlplane.wire.v1 import cluster_pb2, cycles_pb2


class CycleView:
    """The key is `<epoch>/<n>`, both padded as in etcd."""

    trees = ("cycles",)

    def keys(self, snapshot: Snapshot, wanted: Filter, after: str) -> Iterator[str]:
        return sorted_after(
            (f"{epoch}/{n}" for epoch, n in (entry.parts for entry in snapshot.all("cycles")) if _is(n, wanted)), after
        )

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        if delta.tree != "cycles" or not _is(delta.parts[1], wanted):
            return None
        return "/".join(delta.parts)

    def removes(self, delta: Delta) -> bool:
        return delta.new is None

    def read(self, snapshot: Snapshot, key: str) -> tuple[Any, int] | None:
        entry = snapshot.get("cycles", *key.split("/"))
        if entry is None:
            return None
        return convert.to_wire(object_of(entry, Cycle), cycles_pb2.Cycle), entry.revision

    def bare(self, key: str) -> Any:
        epoch, _, n = key.partition("/")
        return cycles_pb2.Cycle(epoch=_number(epoch), n=_number(n))


class TermView:
    trees = ("terms",)

    def keys(self, snapshot: Snapshot, wanted: Filter, after: str) -> Iterator[str]:
        return sorted_after((name for name in snapshot.names("terms") if _is(name, wanted)), after)

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        if delta.tree != "terms" or not _is(delta.parts[0], wanted):
            return None
        return delta.parts[0]

    def removes(self, delta: Delta) -> bool:
        return delta.new is None

    def read(self, snapshot: Snapshot, key: str) -> tuple[Any, int] | None:
        entry = snapshot.get("terms", key)
        if entry is None:
            return None
        return convert.to_wire(object_of(entry, Term), cluster_pb2.Term), entry.revision

    def bare(self, key: str) -> Any:
        return cluster_pb2.Term(epoch=_number(key))


def _is(padded: str, wanted: Filter) -> bool:
    return not wanted.name or padded == wanted.name.zfill(20)


def _number(padded: str) -> int:
    """0 for a key that no leader wrote."""
    number = int(padded) if padded.isascii() and padded.isdigit() and len(padded) == 20 else 0
    return number if number < 2**63 else 0
