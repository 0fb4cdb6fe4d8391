"""The methods shared by services of objects: get, list and watch; create, update and delete of named objects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message

from controlplane.apiserver import large_requests
from controlplane.apiserver.call import Call
from controlplane.apiserver.commands.named_objects import NamedObjects, Stored
from controlplane.apiserver.edge import object_messages
from controlplane.apiserver.edge.methods import ApiMethod, streaming, unary
from controlplane.apiserver.edge.object_messages import ObjectMessages, build, warned
from controlplane.apiserver.queries import objects
from controlplane.apiserver.queries.objects import PageRequest
from controlplane.apiserver.queries.views.object_view import Filter, ObjectView
from controlplane.apiserver.queries.watching import SYNC, ObjectChange, ObjectWatches
from controlplane.cache.reflector import Cache
from controlplane.cache.snapshot import Snapshot
from controlplane.model.object import Named
from controlplane.wire import convert
from controlplane.wire.v1 import (
    common_pb2,
    jobs_pb2,
    packets_pb2,
    resources_pb2,
    rules_pb2,
    scalepolicies_pb2,
    secrets_pb2,
    targets_pb2,
)

NamedMessage = (
    jobs_pb2.Job
    | packets_pb2.Packet
    | resources_pb2.Resource
    | rules_pb2.Rule
    | scalepolicies_pb2.ScalePolicy
    | secrets_pb2.Secret
    | targets_pb2.Target
)
T = TypeVar("T")
M = TypeVar("M", bound=Message)
L = TypeVar("L", bound=Message)
E = TypeVar("E", bound=Message)
R = TypeVar("R", bound=Message)
N = TypeVar("N", bound=NamedMessage)
Show = Callable[[Snapshot, str], T | None]


class ListRequest(Protocol):
    @property
    def limit(self) -> int: ...

    @property
    def page_token(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ReadMethods(Generic[T, M, L, E]):
    """Get, List and Watch of one kind. `listing` is the message of a page, `event` the message of a change."""

    cache: Cache
    view: ObjectView[T]
    messages: ObjectMessages[T, M]
    listing: type[L]
    event: type[E]
    watches: ObjectWatches[T] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "watches", ObjectWatches(self.cache, self.view))

    async def get(self, call: Call, request: common_pb2.GetRequest) -> M:
        return self.messages.message(await objects.get(self.cache, call, self.view, request.name))

    async def list(self, call: Call, request: common_pb2.ListRequest) -> L:
        wanted = Filter(order=request.order, target=request.target, phase=request.phase)
        return await self.page(call, wanted, request)

    async def page(self, call: Call, wanted: Filter, request: ListRequest, show: Show[T] | None = None) -> L:
        asked = PageRequest(request.limit, request.page_token)
        page = await objects.listed(self.cache, call, self.view, wanted, asked, self.messages, show=show)
        return build(self.listing, revision=page.revision, items=page.items, next_page_token=page.next_token)

    def watch(self, call: Call, request: common_pb2.WatchRequest) -> AsyncGenerator[E, None]:
        return self.changes(call, Filter(name=request.name, order=request.order, target=request.target))

    async def changes(self, call: Call, wanted: Filter) -> AsyncGenerator[E, None]:
        async with aclosing(self.watches.watch(call, wanted)) as changes:
            async for change in changes:
                event = self._event(change)
                if event is not None:
                    yield event

    def _event(self, change: ObjectChange[T]) -> E | None:
        """None for an object beyond the range of its message."""
        if change.type == SYNC:
            return build(self.event, type=SYNC, revision=change.revision)
        if change.item is None:
            message: M | None = self.messages.bare(change.key)
        else:
            message = self.messages.encoded(change.key, change.item)
        if message is None:
            return None
        return build(self.event, type=change.type, revision=change.revision, object=message)

    def rows(self) -> dict[str, ApiMethod]:
        return {
            "Get": unary(common_pb2.GetRequest, self.messages.kind, self.get),
            "List": unary(common_pb2.ListRequest, self.listing, self.list),
            "Watch": streaming(common_pb2.WatchRequest, self.event, self.watch),
        }


@dataclass(frozen=True, slots=True)
class NamedMethods(Generic[N, R]):
    """Create, Update and Delete of one kind. `sent` is the struct sent by users, `response` answers a write."""

    objects: NamedObjects
    kind: type[Named]
    message: type[N]
    response: type[R]
    sent: type[Named] | None = None

    async def create(self, call: Call, request: N) -> R:
        return self._answer(await self.objects.create(call, await self._read(request)))

    async def update(self, call: Call, request: N) -> R:
        return self._answer(await self.objects.update(call, await self._read(request), request.revision))

    async def delete(self, call: Call, request: common_pb2.DeleteRequest) -> common_pb2.DeleteResponse:
        revision = await self.objects.delete(call, self.kind, request.name, request.revision)
        return common_pb2.DeleteResponse(revision=revision)

    async def _read(self, request: N) -> Named:
        return await large_requests.run(lambda: convert.to_model(request, self.sent or self.kind))

    def _answer(self, stored: Stored) -> R:
        item = object_messages.stored(self.message, stored.item, stored.revision)
        response: Any = build(self.response, revision=stored.revision, item=item)
        answer: R = warned(response, stored.warnings)
        return answer

    def rows(self) -> dict[str, ApiMethod]:
        return {
            "Create": unary(self.message, self.response, self.create),
            "Update": unary(self.message, self.response, self.update),
            "Delete": unary(common_pb2.DeleteRequest, common_pb2.DeleteResponse, self.delete),
        }
