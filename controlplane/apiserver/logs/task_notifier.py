"""TaskNotifier: wakes waiters for news of a task: its placement, start or end, or a change of its order.

One subscription serves all waiters, and there is none without waiters. Waiters learn of a change, not of its content.
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


class TaskNotifier:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._listeners: dict[str, list[tuple[Task, asyncio.Event]]] = {}
        self._unsubscribe: Callable[[], None] | None = None

    @contextmanager
    def listening(self, order: str, task: Task) -> Iterator[asyncio.Event]:
        """The event is set by every piece of news from now on; the waiter clears the event before each look."""
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
            if delta.tree == keys.ORDERS or (delta.tree == keys.ORDER_STATUS and _is_over(delta.new)):
                self._ring(delta.parts[0], None)
            elif delta.tree == keys.ENDED and delta.parts[0] in self._listeners:
                self._ring(delta.parts[0], _ended(delta.new))
            elif delta.tree == keys.DESIRED:
                self._hear_placed(delta.new or delta.old)
            elif delta.tree == keys.INVENTORY and delta.parts[1] != keys.LIVE:
                self._hear_placed(self._cache.snapshot.get(keys.DESIRED, *delta.parts))

    def _hear_placed(self, entry: Entry[Fulfilment] | None) -> None:
        fulfilment = entry.readable() if entry is not None else None
        if fulfilment is not None and fulfilment.order in self._listeners:
            self._ring(fulfilment.order, {(task.job, task.index) for task in fulfilment.tasks})

    def _ring(self, order: str, tasks: set[Task] | None) -> None:
        for task, heard in self._listeners.get(order, ()):
            if tasks is None or task in tasks:
                heard.set()


def _is_over(entry: Entry[OrderStatus] | None) -> bool:
    """Counts of an order under way are no news of a single task."""
    status = entry.readable() if entry is not None else None
    return status is None or status.phase in FINAL_ORDER


def _ended(entry: Entry[Ended] | None) -> set[Task] | None:
    try:
        return {(task.job, task.index) for task in entry.read().tasks} if entry is not None else None
    except Broken:
        return None
