"""The Fulfilments service: what is placed, and what joblets saw of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.guard import Context, answered, streamed
from controlplane.apiserver.listing import listed
from controlplane.apiserver.reading import fresh
from controlplane.apiserver.views.fulfilments import FulfilmentView
from controlplane.apiserver.watching import watch
from controlplane.model.errors import NotFound
from controlplane.wire.v1 import fulfilments_pb2


class Fulfilments:
    def __init__(self, deps: ApiDependencies) -> None:
        self._cache = deps.cache
        self._view = FulfilmentView(deps.ledgers)

    @answered
    async def Get(self, request: Any, context: Context) -> Any:
        snapshot = await fresh(self._cache, request.min_revision, context)
        key = self._view.find(snapshot, request.name)
        found = self._view.read(snapshot, key) if key is not None else None
        if found is None:
            raise NotFound(f"id: there is no fulfilment {request.name}", field="id")
        return found[0]

    @answered
    async def List(self, request: Any, context: Context) -> Any:
        return fulfilments_pb2.ListFulfilmentsResponse(**await listed(self._cache, self._view, request, context))

    @streamed
    def Watch(self, request: Any, context: Context) -> AsyncGenerator[Any, None]:
        return watch(self._cache, self._view, fulfilments_pb2.FulfilmentEvent, request, context)
