"""Cycles and terms: the records of leaders, in key order, oldest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controlplane.apiserver.fresh_reads import object_of
from controlplane.apiserver.queries.views.object_view import Filter, SeenObject, sorted_after
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.errors import Invalid, NotFound
from controlplane.model.leadership import Cycle, Term
from controlplane.store import keys


class CycleView:
    """The key is `<epoch>/<n>`, both padded as in etcd."""

    trees = (keys.CYCLES,)

    def find(self, snapshot: Snapshot, name: str) -> str | None:
        if not (name.isascii() and name.isdigit()):
            raise Invalid("name", f"must be the number of a cycle, not {name[:80]!r}")
        return next(self.keys(snapshot, Filter(name=name), ""), None)

    def keys(self, snapshot: Snapshot, wanted: Filter, after: str) -> Iterator[str]:
        return sorted_after(
            (f"{epoch}/{n}" for epoch, n in (entry.parts for entry in snapshot.all(keys.CYCLES)) if _is(n, wanted)),
            after,
        )

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        if delta.tree != keys.CYCLES or not _is(delta.parts[1], wanted):
            return None
        return "/".join(delta.parts)

    def removes(self, delta: Delta) -> bool:
        return delta.new is None

    def read(self, snapshot: Snapshot, key: str) -> SeenObject[Cycle] | None:
        entry = snapshot.get(keys.CYCLES, *key.split("/"))
        return SeenObject(object_of(entry), entry.revision) if entry is not None else None

    def owner(self, _snapshot: Snapshot, _key: str) -> str | None:
        return None

    def owner_of(self, _snapshot: Snapshot, _entry: Entry[Any]) -> str:
        return ""

    def veiled(self, item: Cycle) -> Cycle:
        return item

    def missing(self, name: str) -> NotFound:
        return NotFound(f"name: there is no cycle {name}", field="name")


class TermView:
    trees = (keys.TERMS,)

    def find(self, _snapshot: Snapshot, name: str) -> str | None:
        return name.zfill(20)

    def keys(self, snapshot: Snapshot, wanted: Filter, after: str) -> Iterator[str]:
        return sorted_after((name for name in snapshot.names(keys.TERMS) if _is(name, wanted)), after)

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        if delta.tree != keys.TERMS or not _is(delta.parts[0], wanted):
            return None
        return delta.parts[0]

    def removes(self, delta: Delta) -> bool:
        return delta.new is None

    def read(self, snapshot: Snapshot, key: str) -> SeenObject[Term] | None:
        entry = snapshot.get(keys.TERMS, key)
        return SeenObject(object_of(entry), entry.revision) if entry is not None else None

    def owner(self, _snapshot: Snapshot, _key: str) -> str | None:
        return None

    def owner_of(self, _snapshot: Snapshot, _entry: Entry[Any]) -> str:
        return ""

    def veiled(self, item: Term) -> Term:
        return item

    def missing(self, name: str) -> NotFound:
        return NotFound(f"name: there is no term {name}", field="name")


def _is(padded: str, wanted: Filter) -> bool:
    return not wanted.name or padded == wanted.name.zfill(20)
