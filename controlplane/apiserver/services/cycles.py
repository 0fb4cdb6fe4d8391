"""The Cycles service: what each run of the scheduler did. A cycle's name is its number."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.guard import Context, answered, streamed
from controlplane.apiserver.listing import listed
from controlplane.apiserver.reading import fresh
from controlplane.apiserver.views.leadership import CycleView
from controlplane.apiserver.views.view import Filter
from controlplane.apiserver.watching import watch
from controlplane.model.errors import Invalid, NotFound
from controlplane.wire.v1 import cycles_pb2


class Cycles:
    def __init__(self, deps: ApiDependencies) -> None:
        self._cache = deps.cache
        self._view = CycleView()

    @answered
    async def Get(self, request: Any, context: Context) -> Any:
        if not (request.name.isascii() and request.name.isdigit()):
            raise Invalid("name", f"must be the number of a cycle, not {request.name[:80]!r}")
        snapshot = await fresh(self._cache, request.min_revision, context)
        key = next(self._view.keys(snapshot, Filter(name=request.name), ""), None)
        found = self._view.read(snapshot, key) if key is not None else None
        if found is None:
            raise NotFound(f"name: there is no cycle {request.name}", field="name")
        return found[0]

    @answered
    async def List(self, request: Any, context: Context) -> Any:
        return cycles_pb2.ListCyclesResponse(**await listed(self._cache, self._view, request, context))

    @streamed
    def Watch(self, request: Any, context: Context) -> AsyncGenerator[Any, None]:
        return watch(self._cache, self._view, cycles_pb2.CycleEvent, request, context)
