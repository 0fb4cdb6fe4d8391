"""The half of the Orders service that changes orders under way. Every method may be called again, and says the same."""

from __future__ import annotations

from typing import Any

from controlplane.apiserver import changing, updating, wishing
from controlplane.apiserver.admission import catalogue, fields
from controlplane.apiserver.catching_up import admitted
from controlplane.apiserver.changing import Change, Changes
from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.guard import Context, answered
from controlplane.apiserver.reading import PATIENCE_SECONDS
from controlplane.apiserver.views.orders import OrderView
from controlplane.model import identity
from controlplane.model.errors import Invalid
from controlplane.wire.v1 import common_pb2, orders_pb2


class ChangingOrders:
    _deps: ApiDependencies
    _view: OrderView
    _changes: Changes

    @answered
    async def Cancel(self, request: Any, _context: Context) -> Any:
        return await self._change(request, changing.cancel)

    @answered
    async def Pause(self, request: Any, _context: Context) -> Any:
        return await self._change(request, changing.pause)

    @answered
    async def Resume(self, request: Any, _context: Context) -> Any:
        return await self._change(request, changing.resume)

    @answered
    async def Update(self, request: Any, _context: Context) -> Any:
        await self._catch_up(request.id)
        return await self._change(request, await updating.change_of(self._deps, request))

    @answered
    async def CancelTasks(self, request: Any, _context: Context) -> Any:
        if not request.job:
            if request.HasField("index"):
                raise Invalid("job", "must be given with an index")
            return await self._change(request, changing.cancel)
        await self._catch_up(request.id)
        return await self._change(request, wishing.cancel_tasks(self._deps.ledgers, request.job, _index(request)))

    @answered
    async def MoveTask(self, request: Any, _context: Context) -> Any:
        if request.to:
            fields.name(request.to, "to")
            await admitted(self._deps, lambda known: catalogue.target(known, request.to, "to"))
        await self._catch_up(request.id)
        attempt = request.attempt if request.HasField("attempt") else None
        move = wishing.move_task(self._deps.ledgers, request.job, request.index, to=request.to, attempt=attempt)
        return await self._change(request, move)

    @answered
    async def ReleaseTasks(self, request: Any, _context: Context) -> Any:
        if request.HasField("index") and not request.job:
            raise Invalid("job", "must be given with an index")
        if request.stopped and not request.HasField("index"):
            raise Invalid("index", "must be given with stopped: attempts are confirmed one by one")
        await self._catch_up(request.id)
        if request.stopped:
            return await self._change(request, wishing.confirm_stopped(self._deps.ledgers, request.job, request.index))
        return await self._change(request, wishing.release_tasks(self._deps.ledgers, request.job, _index(request)))

    @answered
    async def Delete(self, request: Any, _context: Context) -> Any:
        revision = await self._changes.delete(request.name, request.revision)
        return common_pb2.DeleteResponse(revision=revision)

    async def _change(self, request: Any, change: Change) -> Any:
        done = await self._changes.apply(request.id, request.revision, change)
        item = self._view.show(done.order, done.revision, done.status)
        return orders_pb2.OrderResponse(revision=done.revision, item=item)

    async def _catch_up(self, name: str) -> None:
        """Until this replica has seen all that happened before it was asked: what a user wishes depends on it."""
        identity.check(name)
        await self._deps.cache.reached(await self._deps.store.revision(), PATIENCE_SECONDS)


def _index(request: Any) -> int | None:
    return request.index if request.HasField("index") else None
