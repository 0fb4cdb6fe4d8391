"""The ends of orders since the leader last wrote the totals, counted as the changes arrive.

Warm on every replica: the stored totals count all ends up to their revision, this counter the ends behind. So a new
leader goes on where the last leader stopped, and no order is counted twice, however often leaders change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from controlplane.cache import peek
from controlplane.cache.audience import ListenerStage
from controlplane.cache.ledgers import Source
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Entry
from controlplane.model.errors import Broken
from controlplane.model.order import OrderStatus
from controlplane.model.totals import OrderEnds, Totals, end_of
from controlplane.store import keys


class EndedOrderCounter:
    def __init__(self, cache: Source) -> None:
        self._cache = cache
        self._stored = OrderEnds()
        self._through = 0
        self._since: deque[tuple[int, OrderEnds]] = deque()
        self._sum = OrderEnds()
        cache.subscribe(self._hear, stage=ListenerStage.DERIVE)

    @property
    def ends(self) -> OrderEnds:
        """All ends up to the revision of the cache."""
        return self._stored.plus(self._sum)

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        # A list shows totals and ends in any order, and the totals say which ends are counted already.
        for delta in deltas:
            if delta.tree == keys.STATUS and (delta.tree, *delta.parts) == keys.TOTALS.place and delta.new is not None:
                self._go_on_from(delta.new)
        for delta in deltas:
            if delta.tree == keys.ORDER_STATUS and delta.new is not None and delta.new.revision > self._through:
                self._count(delta.old, delta.new)

    def _go_on_from(self, entry: Entry[Totals]) -> None:
        """Ignores totals that are poison, older than the known totals, or of a revision to come."""
        totals = entry.readable()
        if totals is None or not self._through <= totals.revision <= entry.revision:
            return
        self._stored, self._through = OrderEnds(orders=totals.orders, tasks=totals.closed), totals.revision
        while self._since and self._since[0][0] <= self._through:
            self._since.popleft()
        self._sum = OrderEnds()
        for _, ends in self._since:
            self._sum = self._sum.plus(ends)

    def _count(self, old: Entry[OrderStatus] | None, new: Entry[OrderStatus]) -> None:
        # Few changes are ends, and only those are decoded.
        if not peek.is_final(new) or (old is not None and peek.is_final(old)):
            return
        try:
            ends = end_of(new.read())
        except Broken:
            return
        self._since.append((new.revision, ends))
        self._sum = self._sum.plus(ends)
