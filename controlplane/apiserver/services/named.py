"""The six methods that every named object has. Each service names its kind and its messages, and inherits the rest."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, ClassVar

from google.protobuf.message import Message

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.guard import Context, answered, streamed
from controlplane.apiserver.listing import listed
from controlplane.apiserver.reading import fresh
from controlplane.apiserver.services.answers import warned
from controlplane.apiserver.storing import Objects
from controlplane.apiserver.views.named import NamedView
from controlplane.apiserver.watching import watch
from controlplane.model.errors import NotFound
from controlplane.model.object import Named
from controlplane.wire import convert
from controlplane.wire.v1 import common_pb2


class NamedObjects:
    kind: ClassVar[type[Named]]
    message: ClassVar[type[Message]]
    response: ClassVar[Any]
    listed: ClassVar[Any]
    event: ClassVar[Any]

    def __init__(self, deps: ApiDependencies) -> None:
        self._cache = deps.cache
        self._offload = deps.offload
        self._objects = Objects(deps)
        self._view = self.make_view()

    def make_view(self) -> NamedView:
        return NamedView(self.kind, self.message)

    @answered
    async def Create(self, request: Any, _context: Context) -> Any:
        return self._stored(await self._objects.create(await self._read(request)))

    @answered
    async def Update(self, request: Any, _context: Context) -> Any:
        item = await self._read(request)
        return self._stored(await self._objects.update(item, request.revision))

    async def _read(self, request: Any) -> Named:
        return await self._offload.run(lambda: convert.to_model(request, self.kind))

    def _stored(self, stored: Any) -> Any:
        item = self._view.show(stored.item, stored.revision)
        return warned(self.response(revision=stored.revision, item=item), stored.warnings)

    @answered
    async def Delete(self, request: Any, _context: Context) -> Any:
        revision = await self._objects.delete(self.kind, request.name, request.revision)
        return common_pb2.DeleteResponse(revision=revision)

    @answered
    async def Get(self, request: Any, context: Context) -> Any:
        snapshot = await fresh(self._cache, request.min_revision, context)
        found = self._view.read(snapshot, request.name)
        if found is None:
            raise NotFound(f"name: there is no {self.kind.__name__.lower()} {request.name!r}", field="name")
        return found[0]

    @answered
    async def List(self, request: Any, context: Context) -> Any:
        return self.listed(**await listed(self._cache, self._view, request, context))

    @streamed
    def Watch(self, request: Any, context: Context) -> AsyncGenerator[Any, None]:
        return watch(self._cache, self._view, self.event, request, context)
