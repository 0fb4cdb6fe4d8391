"""Reading orders: one order with its first tasks, pages of orders and of tasks."""

from __future__ import annotations

from typing import TypeVar

import structlog
from msgspec.structs import replace

from controlplane.apiserver import authorisation
from controlplane.apiserver.admission import fields
from controlplane.apiserver.api_ports import Reads
from controlplane.apiserver.call import Call
from controlplane.apiserver.fresh_reads import fresh
from controlplane.apiserver.queries import objects, paging
from controlplane.apiserver.queries.objects import Encoder, ObjectPage, PageRequest
from controlplane.apiserver.queries.views import task_view
from controlplane.apiserver.queries.views.object_view import Filter, sound
from controlplane.apiserver.queries.views.order_view import OrderView, ShownOrder
from controlplane.apiserver.queries.views.task_view import ShownTask, TaskPage
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.errors import ControlPlaneError, Invalid
from controlplane.model.lifecycle import OrderPhase
from controlplane.model.order import Order
from controlplane.store import keys

log = structlog.get_logger(__name__)

E = TypeVar("E")
# Errors of working out the reasons of an order, where values of the order or its targets cannot be counted with.
UNEXPLAINED = (ValueError, TypeError, OverflowError, ControlPlaneError, ArithmeticError, LookupError)
_MOST_TASKS = 1 << 40


class OrderQueries:
    def __init__(self, reads: Reads, view: OrderView) -> None:
        self._reads = reads
        self._view = view

    async def get(self, call: Call, order: str) -> ShownOrder:
        """The order with its first page of tasks."""
        snapshot = await fresh(self._reads.cache, call)
        entry = self._entry(call, snapshot, order)
        seen = self._view.read(snapshot, order)
        if seen is None:
            raise self._view.missing(order)
        shown = self._view.explained(seen.item, call.min_revision)
        page = await self._tasks(call, snapshot, entry, 0, paging.MAX_ITEMS)
        token = paging.token_for(str(len(page.tasks))) if page.more else ""
        return replace(shown, tasks=tuple(page.tasks), next_task_token=token)

    async def list_tasks(self, call: Call, order: str, page: PageRequest) -> ObjectPage[ShownTask]:
        snapshot = await fresh(self._reads.cache, call)
        entry = self._entry(call, snapshot, order)
        position = paging.key_in(page.token) or "0"
        if not (position.isascii() and position.isdigit()):
            raise Invalid("page_token", "is not one that this service gave out")
        limit = paging.limit_of(page.limit)
        start = min(int(position), _MOST_TASKS)
        tasks = await self._tasks(call, snapshot, entry, start, limit)
        token = paging.token_for(str(start + len(tasks.tasks))) if tasks.more else ""
        return ObjectPage(snapshot.revision, tasks.tasks, token)

    def _entry(self, call: Call, snapshot: Snapshot, order: str) -> Entry[Order]:
        """The order; NotFound before anything is read of an order that the caller may not see."""
        entry = snapshot.get(keys.ORDERS, order)
        if entry is None or not authorisation.sees(call.subject, "Order", self._view.owner(snapshot, order)):
            raise self._view.missing(order)
        return entry

    async def _tasks(self, call: Call, snapshot: Snapshot, entry: Entry[Order], start: int, limit: int) -> TaskPage:
        order = self._view.order(entry)
        waits = self._view.waits(order.id, call.min_revision)
        return await task_view.page(self._reads.ledgers, snapshot, order, start=start, limit=limit, waits=waits)

    async def list(self, call: Call, phase: str, page: PageRequest, encoder: Encoder[ShownOrder, E]) -> ObjectPage[E]:
        if phase:
            fields.one_of(phase, tuple(OrderPhase), "phase")

        def show(snapshot: Snapshot, key: str) -> ShownOrder | None:
            if phase and self._view.phase(snapshot, key) != phase:
                return None
            seen = sound(self._view, snapshot, key)
            if seen is None:
                return None
            try:
                return self._view.explained(seen.item, call.min_revision)
            except UNEXPLAINED as error:
                # Shown without the reasons of its waiting tasks: one order must not break the list.
                log.error("an order cannot be explained", order=key, error=repr(error))
                return seen.item

        return await objects.listed(self._reads.cache, call, self._view, Filter(), page, encoder, show=show)
