"""Rings for those who wait for news of one task: that it is placed, runs, has ended, or that its order changed.

One subscription for all of them, and none while nobody waits. It tells that something happened, not what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from controlplane.cache.reflector import Cache, Delta
from controlplane.cache.snapshot import Entry
from controlplane.model.errors import Broken
from controlplane.model.fulfilment import Ended, Fulfilment
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import OrderStatus
from controlplane.store import keys

Task = tuple[str, int]


class Bell:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._listeners: dict[str, list[tuple[Task, asyncio.Event]]] = {}
        self._unsubscribe: Callable[[], None] | None = None

    @contextmanager
    def listening(self, order: str, task: Task) -> Iterator[asyncio.Event]:
        """The event is set by every piece of news from now on; who looks clears it first."""
        heard = asyncio.Event()
        if self._unsubscribe is None:
            self._unsubscribe = self._cache.subscribe(self._hear)
        self._listeners.setdefault(order, []).append((task, heard))
        try:
            yield heard
        finally:
            self._listeners[order].remove((task, heard))
            if not self._listeners[order]:
                del self._listeners[order]
            if not self._listeners:
                self._unsubscribe()
                self._unsubscribe = None

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        for delta in deltas:
            if delta.tree == "config/orders" or (delta.tree == "status/orders" and _is_over(delta.new)):
                self._ring(delta.parts[0], None)
            elif delta.tree == "status/ended" and delta.parts[0] in self._listeners:
                self._ring(delta.parts[0], _ended(delta.new))
            elif delta.tree == "desired":
                self._hear_placed(delta.new or delta.old)
            elif delta.tree == "inventory" and delta.parts[1] != keys.LIVE:
                self._hear_placed(self._cache.snapshot.get("desired", *delta.parts))

    def _hear_placed(self, entry: Entry | None) -> None:
        fulfilment = entry.sound(Fulfilment) if entry is not None else None
        if fulfilment is not None and fulfilment.order in self._listeners:
            self._ring(fulfilment.order, {(task.job, task.index) for task in fulfilment.tasks})

    def _ring(self, order: str, tasks: set[Task] | None) -> None:
        for task, heard in self._listeners.get(order, ()):
            if tasks is None or task in tasks:
                heard.set()


def _is_over(entry: Entry | None) -> bool:
    """Counts of what goes on are no news of one task."""
    status = entry.sound(OrderStatus) if entry is not None else None
    return status is None or status.phase in FINAL_ORDER


def _ended(entry: Entry | None) -> set[Task] | None:
    try:
        return {(task.job, task.index) for task in entry.read(Ended).tasks} if entry is not None else None
    except Broken:
        return None
