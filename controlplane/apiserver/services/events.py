"""The Events service: what happened, to what, why and by whom, for as long as it is kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.guard import Context, answered, streamed
from controlplane.apiserver.listing import listed
from controlplane.apiserver.reading import fresh
from controlplane.apiserver.views.events import EventView
from controlplane.apiserver.views.view import Filter
from controlplane.apiserver.watching import watch
from controlplane.model.errors import Invalid, NotFound
from controlplane.wire.v1 import events_pb2


class Events:
    def __init__(self, deps: ApiDependencies) -> None:
        self._cache = deps.cache
        self._view = EventView()

    @answered
    async def Get(self, request: Any, context: Context) -> Any:
        snapshot = await fresh(self._cache, request.min_revision, context)
        found = self._view.read(snapshot, request.name)
        if found is None:
            raise NotFound(f"name: there is no event {request.name[:80]}, or it has expired", field="name")
        return found[0]

    @answered
    async def List(self, request: Any, context: Context) -> Any:
        wanted = _wanted(request)
        return events_pb2.ListEventsResponse(**await listed(self._cache, self._view, request, context, wanted=wanted))

    @streamed
    def Watch(self, request: Any, context: Context) -> AsyncGenerator[Any, None]:
        wanted = _wanted(request, request.name)
        return watch(self._cache, self._view, events_pb2.EventChange, request, context, wanted=wanted)


def _wanted(request: Any, name: str = "") -> Filter:
    if request.about_name and not request.about_kind:
        raise Invalid("about_kind", "must be given with about_name: names are unique within a kind only")
    return Filter(name=name, about_kind=request.about_kind, about_name=request.about_name)
