"""Fulfilments: what the leader placed, joined with what the joblet saw. The key is the fulfilment's identity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controlplane.apiserver.reading import object_of
from controlplane.apiserver.views.view import Filter, sorted_after
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.fulfilment import Fulfilment, Observed
from controlplane.store.keys import LIVE
from controlplane.wire import convert
from controlplane.wire.v1 import fulfilments_pb2


class FulfilmentView:
    trees = ("desired", "inventory")

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers

    def keys(self, snapshot: Snapshot, wanted: Filter, after: str) -> Iterator[str]:
        """Each as `<fulfilment>/<target>`, so that they sort by identity and are found again at once."""
        return sorted_after((key for key in self._all(snapshot, wanted) if _is_wanted(key, wanted)), after)

    def _all(self, snapshot: Snapshot, wanted: Filter) -> Iterator[str]:
        ledger = self._ledgers.orders.get(wanted.order)
        if ledger is not None:
            for live in ledger.live.values():
                yield f"{live.fulfilment.id}/{live.fulfilment.target}"
        elif not wanted.order:
            front = (wanted.target,) if wanted.target else ()
            for entry in snapshot.all("desired", *front):
                yield f"{entry.parts[1]}/{entry.parts[0]}"

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        if delta.tree not in ("desired", "inventory") or delta.parts[1] == LIVE:
            return None
        target, identity = delta.parts
        key = f"{identity}/{target}"
        if not _is_wanted(key, wanted):
            return None
        if wanted.order:
            placed = self._ledgers.cache.snapshot.get("desired", target, identity)
            entry = delta.old if delta.tree == "desired" and delta.new is None else placed
            fulfilment = entry.sound(Fulfilment) if entry is not None else None
            if fulfilment is None or fulfilment.order != wanted.order:
                return None
        return key

    def removes(self, delta: Delta) -> bool:
        return delta.tree == "desired" and delta.new is None

    def find(self, snapshot: Snapshot, identity: str) -> str | None:
        """The key of the fulfilment with that identity, wherever it is placed."""
        for target in snapshot.names("desired"):
            if snapshot.get("desired", target, identity) is not None:
                return f"{identity}/{target}"
        return None

    def read(self, snapshot: Snapshot, key: str) -> tuple[Any, int] | None:
        identity, _, target = key.partition("/")
        entry = snapshot.get("desired", target, identity)
        if entry is None:
            return None
        message = convert.to_wire(object_of(entry, Fulfilment), fulfilments_pb2.Fulfilment)
        message.revision = entry.revision
        seen = snapshot.get("inventory", target, identity)
        return message, max(entry.revision, self._join(message, seen))

    @staticmethod
    def _join(message: Any, seen: Entry | None) -> int:
        observed = seen.sound(Observed) if seen is not None else None
        if seen is None or observed is None:
            return 0
        message.observed.SetInParent()
        convert.fill(observed, message.observed)
        return seen.revision

    def bare(self, key: str) -> Any:
        identity, _, target = key.partition("/")
        return fulfilments_pb2.Fulfilment(id=identity, target=target)


def _is_wanted(key: str, wanted: Filter) -> bool:
    identity, _, target = key.partition("/")
    return wanted.name in ("", identity) and wanted.target in ("", target)
