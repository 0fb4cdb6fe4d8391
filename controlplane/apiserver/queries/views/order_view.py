"""Orders: as stored, joined with the leader's status; for a single order also why its tasks wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from controlplane.apiserver.fresh_reads import order_status, read_once
from controlplane.apiserver.queries.views.object_view import Filter, SeenObject
from controlplane.apiserver.queries.views.owner_index import OrderIndex
from controlplane.apiserver.queries.views.task_view import ShownTask
from controlplane.apiserver.queries.views.waiting_reasons import Reasons
from controlplane.cache import peek
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.engine.reasons import Part
from controlplane.model.errors import NotFound
from controlplane.model.lifecycle import FINAL_ORDER, OrderPhase
from controlplane.model.order import Counts, Order, OrderStatus, Reason, Resolved
from controlplane.store import keys


class Progress(NamedTuple):
    """The counts and the percentage of an order's tasks at this moment, and why tasks wait."""

    counts: Counts
    percent: int
    reasons: tuple[Reason, ...]


class ShownOrder(msgspec.Struct, frozen=True):
    """`revision` is that of the order, `resolved` its packet's resolution. `now` is newer than the leader's status.

    `tasks` is the first page of the tasks, in an answer with tasks.
    """

    order: Order
    revision: int
    resolved: Resolved
    status: OrderStatus | None
    now: Progress | None = None
    tasks: tuple[ShownTask, ...] = ()
    next_task_token: str = ""


class OrderView:
    trees = (keys.ORDERS, keys.ORDER_STATUS)

    def __init__(self, ledgers: Ledgers, index: OrderIndex, reasons: Reasons) -> None:
        self._ledgers = ledgers
        self._index = index
        self._reasons = reasons

    def find(self, _snapshot: Snapshot, name: str) -> str | None:
        return name

    def keys(self, _snapshot: Snapshot, wanted: Filter, after: str) -> Iterator[str]:
        if wanted.name:
            return iter([wanted.name])
        return self._index.all_after(after) if wanted.owners is None else self._index.after(after, wanted.owners)

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        ours = delta.tree in (keys.ORDERS, keys.ORDER_STATUS) and wanted.name in ("", delta.parts[0])
        return delta.parts[0] if ours else None

    def removes(self, delta: Delta) -> bool:
        return delta.tree == keys.ORDERS and delta.new is None

    def phase(self, snapshot: Snapshot, key: str) -> str:
        status = order_status(snapshot, key)
        return status.phase if status is not None else OrderPhase.PENDING

    def order(self, entry: Entry[Order]) -> Order:
        ledger = self._ledgers.orders.get(entry.parts[0])
        if ledger is not None and ledger.revision == entry.revision:
            return ledger.order
        return read_once(entry)

    def read(self, snapshot: Snapshot, key: str) -> SeenObject[ShownOrder] | None:
        entry = snapshot.get(keys.ORDERS, key)
        if entry is None:
            return None
        status = snapshot.get(keys.ORDER_STATUS, key)
        order = self.order(entry)
        shown = ShownOrder(order, entry.revision, self._ledgers.resolved(order), order_status(snapshot, key))
        return SeenObject(shown, max(entry.revision, status.revision if status is not None else 0))

    def owner(self, snapshot: Snapshot, key: str) -> str:
        ledger = self._ledgers.orders.get(key)
        return ledger.order.owner if ledger is not None else peek.owner(snapshot.get(keys.ORDERS, key))

    def owner_of(self, _snapshot: Snapshot, entry: Entry[Any]) -> str:
        return peek.owner(entry)

    def veiled(self, item: ShownOrder) -> ShownOrder:
        return item

    def missing(self, name: str) -> NotFound:
        return NotFound(f"id: there is no order {name}", field="id")

    def waits(self, identity: str, min_revision: int) -> dict[Part, str]:
        """Why pending tasks wait, by job and placement hint."""
        ledger = self._ledgers.orders.get(identity)
        return self._reasons.of_parts(ledger, min_revision) if ledger is not None else {}

    def explained(self, shown: ShownOrder, min_revision: int = 0) -> ShownOrder:
        """The order with the counts of this moment, which agree with the reasons of waiting tasks."""
        ledger = self._ledgers.orders.get(shown.order.id)
        if ledger is None or ledger.phase in FINAL_ORDER:
            return shown
        now = Progress(ledger.counts(), ledger.percent(), self._reasons.of(ledger, min_revision))
        return replace(shown, now=now)
