"""What was processed since the leader last wrote the totals: the ends of orders, counted as they are heard of.

Warm on every replica: what is stored counts all ends up to its revision, and here are those behind it. So a new leader
goes on where the last one stopped, and no order is counted twice, however often leaders change in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from controlplane.cache.ledgers import Source
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Entry
from controlplane.model.errors import Broken
from controlplane.model.order import OrderStatus
from controlplane.model.totals import Ends, Totals, end_of
from controlplane.store import keys

# Few of the changes of orders' status are ends, and only those are decoded.
_ENDS = (b'"phase":"Succeeded"', b'"phase":"Failed"', b'"phase":"Cancelled"')


class ProcessedCounter:
    def __init__(self, cache: Source) -> None:
        self._cache = cache
        self._stored = Ends()
        self._through = 0
        self._since: deque[tuple[int, Ends]] = deque()
        self._sum = Ends()
        cache.subscribe(self._hear)

    @property
    def ends(self) -> Ends:
        """All ends up to the picture's revision."""
        return self._stored.plus(self._sum)

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        # A list tells the totals and the ends in any order, and the totals say which ends count already.
        for delta in deltas:
            if delta.tree == "status" and (delta.tree, *delta.parts) == keys.TOTALS_PLACE and delta.new is not None:
                self._go_on_from(delta.new)
        for delta in deltas:
            if delta.tree == "status/orders" and delta.new is not None and delta.new.revision > self._through:
                self._count(delta.old, delta.new)

    def _go_on_from(self, entry: Entry) -> None:
        """What is poison, older than what is known, or counts ends to come says nothing."""
        totals = entry.sound(Totals)
        if totals is None or not self._through <= totals.revision <= entry.revision:
            return
        self._stored, self._through = Ends(orders=totals.orders, tasks=totals.closed), totals.revision
        while self._since and self._since[0][0] <= self._through:
            self._since.popleft()
        self._sum = Ends()
        for _, ends in self._since:
            self._sum = self._sum.plus(ends)

    def _count(self, old: Entry | None, new: Entry) -> None:
        if not _is_end(new) or (old is not None and _is_end(old)):
            return
        try:
            ends = end_of(new.read(OrderStatus))
        except Broken:
            return
        self._since.append((new.revision, ends))
        self._sum = self._sum.plus(ends)


def _is_end(entry: Entry) -> bool:
    value = entry.stored.value
    return any(end in value for end in _ENDS)
