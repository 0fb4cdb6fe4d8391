"""The Orders service: submit, look, change."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import structlog

from controlplane.apiserver import paging
from controlplane.apiserver.admission import fields
from controlplane.apiserver.changing import Changes
from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.guard import Context, answered, streamed
from controlplane.apiserver.listing import listed
from controlplane.apiserver.logs.bell import Bell
from controlplane.apiserver.reading import fresh
from controlplane.apiserver.services.answers import warned
from controlplane.apiserver.services.changing_orders import ChangingOrders
from controlplane.apiserver.services.explaining import Explaining
from controlplane.apiserver.services.logs import ReadingLogs
from controlplane.apiserver.services.requests import order_request
from controlplane.apiserver.submission import Submissions, Submitted
from controlplane.apiserver.views import tasks
from controlplane.apiserver.views.orders import TREE, OrderView, status_in
from controlplane.apiserver.views.view import CONVERSION, sound
from controlplane.apiserver.watching import watch
from controlplane.cache.snapshot import Snapshot
from controlplane.model import texts
from controlplane.model.errors import ControlPlaneError, Invalid, LimitExceeded, NotFound
from controlplane.model.lifecycle import OrderPhase
from controlplane.model.order import OrderRequest
from controlplane.wire.v1 import orders_pb2

log = structlog.get_logger(__name__)

# What working out the reasons of one order may raise, where what it or its targets say cannot be counted with.
UNEXPLAINED = (*CONVERSION, ControlPlaneError, ArithmeticError, LookupError)


class Orders(Explaining, ChangingOrders, ReadingLogs):
    def __init__(self, deps: ApiDependencies, submissions: Submissions, view: OrderView) -> None:
        super().__init__(deps, submissions)
        self._view = view
        self._changes = Changes(deps)
        self._bell = Bell(deps.cache)

    @answered
    async def Submit(self, request: Any, _context: Context) -> Any:
        await fresh(self._deps.cache, 0)
        await self._submissions.turnstile.enter(request.owner, 1)
        done = await self._submissions.submit(await self._deps.offload.run(lambda: order_request(request)))
        status = status_in(self._deps.cache.snapshot.get("status/orders", done.order.id)) if done.repeated else None
        item = self._view.show(done.order, done.revision, status, resolved=False)
        answer = orders_pb2.OrderResponse(revision=done.revision, item=item, repeated=done.repeated)
        return warned(answer, done.warnings)

    Create = Submit

    @answered
    async def SubmitBatch(self, request: Any, _context: Context) -> Any:
        await fresh(self._deps.cache, 0)
        if request.orders:
            await self._submissions.turnstile.enter(request.orders[0].owner, len(request.orders))
        read, refused = await self._deps.offload.run(lambda: _read_all(request.orders))
        results = dict(zip(read, await self._submissions.submit_all(list(read.values())), strict=True))
        answer = orders_pb2.SubmitBatchResponse()
        for position, order in enumerate(request.orders):
            # Written in place: a message that is put into another is copied with all that it holds.
            _tell(answer.results.add(), order.id, refused.get(position) or results[position])
        return answer

    @answered
    async def Get(self, request: Any, context: Context) -> Any:
        snapshot = await fresh(self._deps.cache, request.min_revision, context)
        found = self._view.read(snapshot, request.name)
        entry = snapshot.get(TREE, request.name)
        if found is None or entry is None:
            raise NotFound(f"id: there is no order {request.name}", field="id")
        message = found[0]
        self._view.explain(message, request.min_revision)
        order = self._view.order(entry)
        waits = self._view.waits(order.id, request.min_revision)
        page = await tasks.page(self._deps.ledgers, snapshot, order, start=0, limit=paging.MAX_ITEMS, waits=waits)
        message.tasks.extend(page.tasks)
        message.next_task_token = paging.token_for(str(len(page.tasks))) if page.more else ""
        return message

    @answered
    async def ListTasks(self, request: Any, context: Context) -> Any:
        snapshot = await fresh(self._deps.cache, request.min_revision, context)
        entry = snapshot.get(TREE, request.id)
        if entry is None:
            raise NotFound(f"id: there is no order {request.id}", field="id")
        position = paging.key_in(request.page_token) or "0"
        if not (position.isascii() and position.isdigit()):
            raise Invalid("page_token", "is not one that this service gave out")
        limit = paging.limit_of(request.limit)
        start = min(int(position), 1 << 40)
        order = self._view.order(entry)
        waits = self._view.waits(order.id, request.min_revision)
        page = await tasks.page(self._deps.ledgers, snapshot, order, start=start, limit=limit, waits=waits)
        token = paging.token_for(str(start + len(page.tasks))) if page.more else ""
        return orders_pb2.ListTasksResponse(revision=snapshot.revision, items=page.tasks, next_page_token=token)

    @answered
    async def List(self, request: Any, context: Context) -> Any:
        if request.phase:
            fields.one_of(request.phase, tuple(OrderPhase), "phase")

        def show(snapshot: Snapshot, key: str) -> Any | None:
            if request.phase and self._view.phase(snapshot, key) != request.phase:
                return None
            found = sound(self._view, snapshot, key)
            if found is None:
                return None
            try:
                self._view.explain(found[0], request.min_revision)
            except UNEXPLAINED as error:
                # Shown without the reasons why its tasks wait: one order keeps nobody from the list.
                log.error("an order cannot be explained", order=key, error=repr(error))
            return found[0]

        return orders_pb2.ListOrdersResponse(**await listed(self._deps.cache, self._view, request, context, show=show))

    @streamed
    def Watch(self, request: Any, context: Context) -> AsyncGenerator[Any, None]:
        return watch(self._deps.cache, self._view, orders_pb2.OrderEvent, request, context)


def _read_all(messages: Sequence[Any]) -> tuple[dict[int, OrderRequest], dict[int, ControlPlaneError]]:
    """The requests of a batch by their position, and why others cannot be read."""
    read: dict[int, OrderRequest] = {}
    refused: dict[int, ControlPlaneError] = {}
    for position, message in enumerate(messages):
        try:
            read[position] = order_request(message)
        except ControlPlaneError as error:
            refused[position] = error
    return read, refused


def _tell(result: Any, identity: str, done: Submitted | ControlPlaneError) -> None:
    if isinstance(done, ControlPlaneError):
        result.id = identity
        result.failure.code = type(done).__name__
        result.failure.message = texts.cut(str(done), 1000)
        result.failure.field = getattr(done, "field", "")[:200]
        if isinstance(done, LimitExceeded) and done.retry_after_seconds is not None:
            result.failure.retry_after_seconds = done.retry_after_seconds
        return
    result.id = done.order.id
    result.revision = done.revision
    if done.repeated:
        result.repeated = True
    if done.warnings:
        warned(result, done.warnings)
