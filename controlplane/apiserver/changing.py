"""Changes of orders under way: a re-read and a compare, repeated when somebody else was faster. All are idempotent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.repeating import insist
from controlplane.model import identity
from controlplane.model.errors import Broken, Conflict, IllegalTransition, NotFound
from controlplane.model.lifecycle import FINAL_ORDER, OrderPhase
from controlplane.model.order import Order, OrderStatus
from controlplane.store import codec, keys, places, transaction
from controlplane.store.transaction import Item, Value

_TRIES = 5

Change = Callable[[Order, str], Order]


@dataclass(frozen=True, slots=True)
class Changed:
    order: Order
    revision: int
    status: OrderStatus | None


def cancel(order: Order, phase: str) -> Order:
    if phase == OrderPhase.CANCELLED:
        return order
    not_final(order, phase, "cancelled")
    return replace(order, cancel=True)


def pause(order: Order, phase: str) -> Order:
    not_final(order, phase, "paused")
    if order.cancel:
        raise IllegalTransition(f"order {order.id} is being cancelled and cannot be paused", field="id")
    return replace(order, paused=True)


def resume(order: Order, phase: str) -> Order:
    not_final(order, phase, "resumed")
    return replace(order, paused=False)


def not_final(order: Order, phase: str, what: str) -> None:
    if phase in FINAL_ORDER:
        raise IllegalTransition(f"order {order.id} is {phase} and cannot be {what}", field="id")


class Changes:
    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    async def apply(self, name: str, revision: int, change: Change) -> Changed:
        """`revision`: the one that the user read; 0 for whatever is there."""
        for _ in range(_TRIES):
            stored, status = await self._read(name)
            order = _order_in(stored)
            changed = change(order, status.phase if status is not None else OrderPhase.PENDING)
            if changed == order:
                return Changed(order, stored.mod_revision, status)
            _same(stored, revision, name)
            codec.check(changed)
            item = Item(
                (transaction.mod_is(stored.key, stored.mod_revision),),
                (transaction.put(stored.key, codec.rewrite(stored.value, changed)),),
            )
            outcome, _ = await insist(self._deps, item)
            if outcome.succeeded:
                return Changed(changed, outcome.revision, status)
        raise Conflict(f"order {name} keeps being changed by others; try again")

    async def delete(self, name: str, revision: int) -> int:
        """Only of a final order; returns the revision. The leader cleans up what belonged to it."""
        for attempt in range(_TRIES):
            try:
                stored, status = await self._read(name)
            except NotFound:
                if attempt:
                    return self._deps.cache.revision
                raise
            phase = status.phase if status is not None else OrderPhase.PENDING
            if phase not in FINAL_ORDER:
                raise IllegalTransition(f"order {name} is {phase}; cancel it first", field="name")
            _same(stored, revision, name)
            item = Item((transaction.mod_is(stored.key, stored.mod_revision),), (transaction.delete(stored.key),))
            outcome, _ = await insist(self._deps, item)
            if outcome.succeeded:
                return outcome.revision
        raise Conflict(f"order {name} keeps being changed by others; try again")

    async def _read(self, name: str) -> tuple[Value, OrderStatus | None]:
        """The order and its status. Only the order is compared: a status that changes meanwhile changes no wish."""
        identity.check(name)
        get = self._deps.store.get
        stored, status = await asyncio.gather(get(keys.order(name)), get(keys.order_status(name)))
        if stored is None:
            raise NotFound(f"there is no order {name}", field="id")
        return stored, _status_in(status)


def _order_in(stored: Value) -> Order:
    try:
        return places.read(stored, Order)
    except Broken as error:
        raise Broken(f"what is stored at {stored.key} cannot be read: {error}") from None


def _status_in(stored: Value | None) -> OrderStatus | None:
    try:
        return places.read(stored, OrderStatus) if stored is not None else None
    except Broken:
        return None


def _same(stored: Value, revision: int, name: str) -> None:
    if revision and revision != stored.mod_revision:
        raise Conflict(f"order {name} was changed at revision {stored.mod_revision}, after {revision}; read it again")
