"""Commands about orders under way: a read, a compare and a write, repeated after a conflict.

Every command may be repeated, and has the same answer then.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from msgspec.structs import replace

from controlplane.apiserver import authorisation
from controlplane.apiserver.admission import catalogue, fields
from controlplane.apiserver.admission.admit_caught_up import admit_caught_up
from controlplane.apiserver.api_ports import Reads, Writes
from controlplane.apiserver.authorisation import Verb
from controlplane.apiserver.call import Call
from controlplane.apiserver.commands import order_wishes, update_order
from controlplane.apiserver.commands.guarded_writes import write_until_answered
from controlplane.apiserver.commands.order_wishes import OrderChange
from controlplane.apiserver.commands.update_order import OrderUpdate
from controlplane.apiserver.fresh_reads import PATIENCE_SECONDS
from controlplane.model import identity
from controlplane.model.errors import Broken, Conflict, IllegalTransition, Invalid, NotFound
from controlplane.model.lifecycle import FINAL_ORDER, OrderPhase
from controlplane.model.order import Order, OrderStatus
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item, Value

_TRIES = 5


@dataclass(frozen=True, slots=True)
class ChangedOrder:
    order: Order
    revision: int
    status: OrderStatus | None


class OrderCommands:
    """`order` is an identity; `revision` is the revision which the user read, 0 for any."""

    def __init__(self, reads: Reads, writes: Writes) -> None:
        self._reads = reads
        self._writes = writes

    async def cancel(self, call: Call, order: str, revision: int) -> ChangedOrder:
        return await self._change(call, order, revision, order_wishes.cancel)

    async def pause(self, call: Call, order: str, revision: int) -> ChangedOrder:
        return await self._change(call, order, revision, order_wishes.pause)

    async def resume(self, call: Call, order: str, revision: int) -> ChangedOrder:
        return await self._change(call, order, revision, order_wishes.resume)

    async def delete(self, call: Call, name: str, revision: int) -> int:
        """Deletes a final order and returns the revision. The leader cleans up the rest of the order."""
        for attempt in range(_TRIES):
            try:
                stored, status = await self._read(call, Verb.DELETE, name)
            except NotFound:
                if attempt:
                    return self._reads.cache.revision
                raise
            phase = status.phase if status is not None else OrderPhase.PENDING
            if phase not in FINAL_ORDER:
                raise IllegalTransition(f"order {name} is {phase}; cancel it first", field="name")
            _same(stored, revision, name)
            item = Item((transaction.mod_is(stored.key, stored.mod_revision),), (transaction.delete(stored.key),))
            outcome, _ = await write_until_answered(self._writes, item)
            if outcome.succeeded:
                return outcome.revision
        raise Conflict(f"order {name} keeps being changed by others; try again")

    async def update(self, call: Call, order: str, revision: int, update: OrderUpdate) -> ChangedOrder:
        await self._catch_up(order)
        return await self._change(
            call, order, revision, await update_order.change_of(self._reads, call.subject, update)
        )

    async def cancel_tasks(self, call: Call, order: str, revision: int, job: str, index: int | None) -> ChangedOrder:
        """All tasks of the job without an index, the whole order without a job."""
        if not job:
            if index is not None:
                raise Invalid("job", "must be given with an index")
            return await self.cancel(call, order, revision)
        await self._catch_up(order)
        return await self._change(call, order, revision, order_wishes.cancel_tasks(self._reads.ledgers, job, index))

    async def move_task(
        self, call: Call, order: str, revision: int, *, job: str, index: int, to: str, attempt: int | None
    ) -> ChangedOrder:
        """`to`: a target, '' for any other; `attempt`: the attempt to leave its target, None for the newest."""
        if to:
            fields.name(to, "to")
            await admit_caught_up(self._reads, call.subject, lambda existing: catalogue.target(existing, to, "to"))
        await self._catch_up(order)
        move = order_wishes.move_task(self._reads.ledgers, job, index, to=to, attempt=attempt)
        return await self._change(call, order, revision, move)

    async def release_tasks(
        self, call: Call, order: str, revision: int, *, job: str, index: int | None, stopped: bool
    ) -> ChangedOrder:
        """`stopped`: the user confirms the end of an attempt on a silent target."""
        if index is not None and not job:
            raise Invalid("job", "must be given with an index")
        if stopped and index is None:
            raise Invalid("index", "must be given with stopped: attempts are confirmed one by one")
        await self._catch_up(order)
        if stopped and index is not None:
            change = order_wishes.confirm_stopped(self._reads.ledgers, job, index)
        else:
            change = order_wishes.release_tasks(self._reads.ledgers, job, index)
        return await self._change(call, order, revision, change)

    async def _change(self, call: Call, name: str, revision: int, change: OrderChange) -> ChangedOrder:
        for _ in range(_TRIES):
            stored, status = await self._read(call, Verb.UPDATE, name)
            order = _order_in(stored)
            changed = change(order, status.phase if status is not None else OrderPhase.PENDING)
            if changed == order:
                return ChangedOrder(order, stored.mod_revision, status)
            _same(stored, revision, name)
            changed = replace(changed, changed_by=call.subject.name)
            codec.check(changed)
            item = Item(
                (transaction.mod_is(stored.key, stored.mod_revision),),
                (transaction.put(stored.key, codec.rewrite(stored.value, changed)),),
            )
            outcome, _ = await write_until_answered(self._writes, item)
            if outcome.succeeded:
                return ChangedOrder(changed, outcome.revision, status)
        raise Conflict(f"order {name} keeps being changed by others; try again")

    async def _read(self, call: Call, verb: Verb, name: str) -> tuple[Value, OrderStatus | None]:
        """The order and its status. Only the order is compared: a new status changes no wish.

        NotFound for an order that the subject may not see, Forbidden for one that it may only see.
        """
        identity.check(name)
        get = self._reads.store.get
        stored, status = await asyncio.gather(get(keys.order(name)), get(keys.order_status(name)))
        owner = owner_of(stored) if stored is not None else ""
        if stored is None or not authorisation.sees(call.subject, "Order", owner):
            raise NotFound(f"there is no order {name}", field="id")
        authorisation.check(call.subject, verb, "Order", owner)
        return stored, _status_in(status)

    async def _catch_up(self, order: str) -> None:
        """Waits until the cache has all changes before the command: a wish depends on the present state of tasks."""
        identity.check(order)
        await self._reads.cache.reached(await self._reads.store.revision(), PATIENCE_SECONDS)


def _order_in(stored: Value) -> Order:
    try:
        return codec.read(stored, Order)
    except Broken as error:
        raise Broken(f"what is stored at {stored.key} cannot be read: {error}") from None


def owner_of(stored: Value) -> str:
    """The owner of a stored order, '' when the value cannot be read: then administrators alone see the order."""
    try:
        return codec.read(stored, Order).owner
    except Broken:
        return ""


def _status_in(stored: Value | None) -> OrderStatus | None:
    try:
        return codec.read(stored, OrderStatus) if stored is not None else None
    except Broken:
        return None


def _same(stored: Value, revision: int, name: str) -> None:
    if revision and revision != stored.mod_revision:
        raise Conflict(f"order {name} was changed at revision {stored.mod_revision}, after {revision}; read it again")
