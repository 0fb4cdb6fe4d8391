"""Events, oldest first, all of them or those about one kind or one object. The key is the event's identity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controlplane.apiserver.reading import object_of
from controlplane.apiserver.views.view import Filter, sorted_after
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.event import Event
from controlplane.wire import convert
from controlplane.wire.v1 import events_pb2


class EventView:
    trees = ("events",)

    def keys(self, snapshot: Snapshot, wanted: Filter, after: str) -> Iterator[str]:
        if not wanted.name and not wanted.about_kind:
            return sorted_after(snapshot.names("events"), after)
        names = (entry.parts[0] for entry in snapshot.all("events") if _is_wanted(entry, wanted))
        return sorted_after(names, after)

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        entry = delta.new or delta.old
        if delta.tree != "events" or entry is None or not _is_wanted(entry, wanted):
            return None
        return delta.parts[0]

    def removes(self, delta: Delta) -> bool:
        return delta.new is None

    def read(self, snapshot: Snapshot, key: str) -> tuple[Any, int] | None:
        entry = snapshot.get("events", key)
        if entry is None:
            return None
        return convert.to_wire(object_of(entry, Event), events_pb2.Event), entry.revision

    def bare(self, key: str) -> Any:
        return events_pb2.Event(id=key)


def _is_wanted(entry: Entry, wanted: Filter) -> bool:
    if wanted.name not in ("", entry.parts[0]):
        return False
    if not wanted.about_kind:
        return True
    event = entry.sound(Event)
    if event is None or event.about.kind != wanted.about_kind:
        return False
    return wanted.about_name in ("", event.about.name)
