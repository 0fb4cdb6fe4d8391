"""Named objects as users see them: scale policies and targets are joined with their state."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from controlplane.apiserver.authorisation import OWNED
from controlplane.apiserver.fresh_reads import object_of
from controlplane.apiserver.queries.views.object_view import Filter, SeenObject, sorted_after
from controlplane.apiserver.queries.views.owner_index import OwnerIndex
from controlplane.cache import peek
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.errors import NotFound
from controlplane.model.hosting import Hosting
from controlplane.model.kinds import kind_of
from controlplane.model.lifecycle import TargetPhase
from controlplane.model.object import Named
from controlplane.model.scalepolicy import Made, ScalePolicy, Scaling
from controlplane.model.target import Live, Target, TargetStatus
from controlplane.store import keys
from controlplane.store.keys import LIVE

N = TypeVar("N", bound=Named)
S = TypeVar("S", bound=msgspec.Struct)


class Shown(msgspec.Struct, Generic[N], frozen=True):
    """`revision` is the revision of the item's last write."""

    item: N
    revision: int


class ShownScalePolicy(Shown[ScalePolicy], frozen=True):
    """With the record of scaling, and the targets made by the policy."""

    scaling: Scaling | None = None
    made: tuple[Made, ...] = ()


class ShownTarget(Shown[Target], frozen=True):
    """With the words of the leader, the hosting replica and the joblet about the target."""

    status: TargetStatus | None = None
    hosting: Hosting | None = None
    live: Live | None = None

    @property
    def phase(self) -> str:
        return self.status.phase if self.status is not None else TargetPhase.PROVISIONING


class NamedView(Generic[N]):
    def __init__(self, kind: type[N], index: OwnerIndex | None = None) -> None:
        """`index`: of a kind whose objects have owners."""
        self.kind = kind
        self.tree = keys.tree_of(kind)
        self._index = index

    @property
    def trees(self) -> Collection[str]:
        return (self.tree,)

    def find(self, _snapshot: Snapshot, name: str) -> str | None:
        return name

    def keys(self, snapshot: Snapshot, wanted: Filter, after: str) -> Iterator[str]:
        if wanted.name:
            return sorted_after([wanted.name], after)
        if self._index is not None and wanted.owners is not None:
            return self._index.after(after, wanted.owners)
        return sorted_after(snapshot.names(self.tree), after)

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        if delta.tree == self.tree and wanted.name in ("", delta.parts[0]):
            return delta.parts[0]
        return None

    def removes(self, delta: Delta) -> bool:
        return delta.tree == self.tree and delta.new is None

    def read(self, snapshot: Snapshot, key: str) -> SeenObject[Shown[N]] | None:
        entry = snapshot.get(self.tree, key)
        if entry is None:
            return None
        return SeenObject(Shown(object_of(entry), entry.revision), entry.revision)

    def owner(self, snapshot: Snapshot, key: str) -> str | None:
        return peek.owner(snapshot.get(self.tree, key)) if kind_of(self.kind).word in OWNED else None

    def owner_of(self, _snapshot: Snapshot, entry: Entry[Any]) -> str:
        return peek.owner(entry)

    def veiled(self, item: Shown[N]) -> Shown[N]:
        return item

    def missing(self, name: str) -> NotFound:
        return NotFound(f"name: there is no {self.kind.__name__.lower()} {name!r}", field="name")


class ScalePolicyView(NamedView[ScalePolicy]):
    def __init__(self) -> None:
        super().__init__(ScalePolicy)

    @property
    def trees(self) -> Collection[str]:
        return (self.tree, keys.MADE, keys.SCALING)

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        if delta.tree == keys.MADE:
            entry = delta.new or delta.old
            made: Made | None = entry.readable() if entry is not None else None
            name = made.policy if made is not None else ""
        else:
            name = delta.parts[0] if delta.tree in (self.tree, keys.SCALING) else ""
        return name if name and wanted.name in ("", name) else None

    def read(self, snapshot: Snapshot, key: str) -> SeenObject[ShownScalePolicy] | None:
        seen = super().read(snapshot, key)
        if seen is None:
            return None
        scaling, scaled_at = _part(snapshot.get(keys.SCALING, key))
        newest = max(seen.revision, scaled_at)
        targets: list[Made] = []
        for entry in sorted(snapshot.all(keys.MADE), key=lambda entry: (len(entry.parts[0]), entry.parts[0])):
            made = entry.readable()
            if made is not None and made.policy == key:
                targets.append(made)
                newest = max(newest, entry.revision)
        return SeenObject(ShownScalePolicy(seen.item.item, seen.item.revision, scaling, tuple(targets)), newest)


class TargetView(NamedView[Target]):
    def __init__(self) -> None:
        super().__init__(Target)

    @property
    def trees(self) -> Collection[str]:
        return (self.tree, keys.TARGET_STATUS, keys.HOSTING, keys.INVENTORY)

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        name = delta.parts[0]
        ours = delta.tree in (self.tree, keys.TARGET_STATUS, keys.HOSTING) or (
            delta.tree == keys.INVENTORY and delta.parts[1] == LIVE
        )
        return name if ours and wanted.name in ("", name) else None

    def read(self, snapshot: Snapshot, key: str) -> SeenObject[ShownTarget] | None:
        seen = super().read(snapshot, key)
        if seen is None:
            return None
        status, told_at = _part(snapshot.get(keys.TARGET_STATUS, key))
        hosting, hosted_at = _part(snapshot.get(keys.HOSTING, key))
        live, beat_at = _part(snapshot.live_entry(key))
        newest = max(seen.revision, told_at, hosted_at, beat_at)
        return SeenObject(ShownTarget(seen.item.item, seen.item.revision, status, hosting, live), newest)

    def veiled(self, item: Shown[Target]) -> Shown[Target]:
        """Statistics and leftovers of the joblet count the attempts of all owners; free room stays. A secret is an
        object that the caller may not see.
        """
        if not isinstance(item, ShownTarget):
            return item
        live = item.live and msgspec.structs.replace(item.live, stats={}, reported="", leftovers=0)
        target = msgspec.structs.replace(item.item, kubeconfig_secret="")
        return msgspec.structs.replace(item, item=target, live=live)


def _part(entry: Entry[S] | None) -> tuple[S | None, int]:
    """A part joined to an object, and the part's revision; (None, 0) for an absent entry and for poison."""
    part = entry.readable() if entry is not None else None
    return part, entry.revision if entry is not None and part is not None else 0
