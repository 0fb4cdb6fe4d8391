"""Fulfilments: the leader's placements, joined with the joblets' reports. The key begins with the identity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from controlplane.apiserver.fresh_reads import object_of
from controlplane.apiserver.queries.views.object_view import Filter, SeenObject, sorted_after
from controlplane.apiserver.queries.views.owner_index import OwnerIndex
from controlplane.cache import peek
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.errors import NotFound
from controlplane.model.fulfilment import Fulfilment, Observed
from controlplane.store import keys
from controlplane.store.keys import LIVE


class ShownFulfilment(msgspec.Struct, frozen=True):
    """`revision` is that of the placement; `observed` is the joblet's newest report."""

    fulfilment: Fulfilment
    revision: int
    observed: Observed | None = None


class FulfilmentView:
    trees = (keys.DESIRED, keys.INVENTORY)

    def __init__(self, ledgers: Ledgers, orders: OwnerIndex) -> None:
        self._ledgers = ledgers
        self._orders = orders

    def keys(self, snapshot: Snapshot, wanted: Filter, after: str) -> Iterator[str]:
        """Each key is `<fulfilment>/<target>`: sorted by identity, and found again at once."""
        return sorted_after((key for key in self._all(snapshot, wanted) if _is_wanted(key, wanted)), after)

    def _all(self, snapshot: Snapshot, wanted: Filter) -> Iterator[str]:
        if wanted.order or wanted.owners is not None:
            yield from self._of_orders(wanted)
        else:
            front = (wanted.target,) if wanted.target else ()
            for entry in snapshot.all(keys.DESIRED, *front):
                yield f"{entry.parts[1]}/{entry.parts[0]}"

    def _of_orders(self, wanted: Filter) -> Iterator[str]:
        """The fulfilments of one order, or of some owners' orders. Orders of other owners are not searched."""
        orders = (wanted.order,) if wanted.order else self._orders.of_owners(wanted.owners or frozenset())
        for order in orders:
            ledger = self._ledgers.orders.get(order)
            if ledger is not None and (wanted.owners is None or ledger.order.owner in wanted.owners):
                for live in ledger.live.values():
                    yield f"{live.fulfilment.id}/{live.fulfilment.target}"
            for target, identity in self._ledgers.strays.get(order, ()):
                yield f"{identity}/{target}"

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        if delta.tree not in (keys.DESIRED, keys.INVENTORY) or delta.parts[1] == LIVE:
            return None
        target, identity = delta.parts
        key = f"{identity}/{target}"
        if not _is_wanted(key, wanted):
            return None
        if wanted.order:
            placed = self._ledgers.cache.snapshot.get(keys.DESIRED, target, identity)
            entry = delta.old if delta.tree == keys.DESIRED and delta.new is None else placed
            fulfilment = entry.readable() if entry is not None else None
            if fulfilment is None or fulfilment.order != wanted.order:
                return None
        return key

    def removes(self, delta: Delta) -> bool:
        return delta.tree == keys.DESIRED and delta.new is None

    def find(self, snapshot: Snapshot, identity: str) -> str | None:
        """The key of the fulfilment with the identity, on any target."""
        for target in snapshot.names(keys.DESIRED):
            if snapshot.has(keys.DESIRED, target, identity):
                return f"{identity}/{target}"
        return None

    def read(self, snapshot: Snapshot, key: str) -> SeenObject[ShownFulfilment] | None:
        identity, _, target = key.partition("/")
        entry = snapshot.get(keys.DESIRED, target, identity)
        if entry is None:
            return None
        report = snapshot.get(keys.INVENTORY, target, identity)
        observed = report.readable() if report is not None else None
        newest = max(entry.revision, report.revision) if report is not None and observed is not None else entry.revision
        return SeenObject(ShownFulfilment(object_of(entry), entry.revision, observed), newest)

    def owner(self, snapshot: Snapshot, key: str) -> str | None:
        identity, _, target = key.partition("/")
        entry = snapshot.get(keys.DESIRED, target, identity)
        return self.owner_of(snapshot, entry) if entry is not None else ""

    def owner_of(self, snapshot: Snapshot, entry: Entry[Any]) -> str:
        """That of the order, which the placement repeats. Placements of an earlier version do not."""
        owner = peek.owner(entry)
        if owner:
            return owner
        fulfilment: Fulfilment | None = entry.readable()
        return peek.owner(snapshot.get(keys.ORDERS, fulfilment.order)) if fulfilment is not None else ""

    def veiled(self, item: ShownFulfilment) -> ShownFulfilment:
        return item

    def missing(self, name: str) -> NotFound:
        return NotFound(f"id: there is no fulfilment {name}", field="id")


def _is_wanted(key: str, wanted: Filter) -> bool:
    identity, _, target = key.partition("/")
    return wanted.name in ("", identity) and wanted.target in ("", target)
