"""Events, oldest first: all, or those about a kind or an object. The key is the event's identity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controlplane.apiserver.fresh_reads import object_of
from controlplane.apiserver.queries.views.object_view import Filter, SeenObject, sorted_after
from controlplane.apiserver.queries.views.owner_index import OwnerIndex
from controlplane.cache import peek
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.errors import NotFound
from controlplane.model.event import Event
from controlplane.store import keys


class EventView:
    trees = (keys.EVENTS,)

    def __init__(self, index: OwnerIndex) -> None:
        self._index = index

    def find(self, _snapshot: Snapshot, name: str) -> str | None:
        return name

    def keys(self, snapshot: Snapshot, wanted: Filter, after: str) -> Iterator[str]:
        if wanted.owners is not None:
            own = ((name, snapshot.get(keys.EVENTS, name)) for name in self._index.after(after, wanted.owners))
            return (name for name, entry in own if entry is not None and _is_wanted(entry, wanted))
        if not wanted.name and not wanted.about_kind:
            return sorted_after(snapshot.names(keys.EVENTS), after)
        names = (entry.parts[0] for entry in snapshot.all(keys.EVENTS) if _is_wanted(entry, wanted))
        return sorted_after(names, after)

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        entry = delta.new or delta.old
        if delta.tree != keys.EVENTS or entry is None or not _is_wanted(entry, wanted):
            return None
        return delta.parts[0]

    def removes(self, delta: Delta) -> bool:
        return delta.new is None

    def read(self, snapshot: Snapshot, key: str) -> SeenObject[Event] | None:
        entry = snapshot.get(keys.EVENTS, key)
        return SeenObject(object_of(entry), entry.revision) if entry is not None else None

    def owner(self, snapshot: Snapshot, key: str) -> str | None:
        """That of the object it is about. Events about the plane have none, and name the work of anybody."""
        return peek.owner(snapshot.get(keys.EVENTS, key))

    def owner_of(self, _snapshot: Snapshot, entry: Entry[Any]) -> str:
        return peek.owner(entry)

    def veiled(self, item: Event) -> Event:
        return item

    def missing(self, name: str) -> NotFound:
        return NotFound(f"name: there is no event {name[:80]}, or it has expired", field="name")


def _is_wanted(entry: Entry[Event], wanted: Filter) -> bool:
    if wanted.name not in ("", entry.parts[0]):
        return False
    if not wanted.about_kind:
        return True
    event = entry.readable()
    if event is None or event.about.kind != wanted.about_kind:
        return False
    return wanted.about_name in ("", event.about.name)
