"""Sending: orders whose placements a leader has sent and does not see in the cache yet.

While placements are under way the state of those tasks is unknown. Wishes of users are compared by the placement
itself. An end that the leader decides on its own (a deadline, a failure that fails the order) has no key for a
placement to compare, so that such an end waits until the cache shows the outcome. Kept in memory only: the fence
refuses writes of an earlier term, so that a new leader begins without placements under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager


class Sending:
    def __init__(self, settled: Callable[[set[str]], None]) -> None:
        """`settled` hears of orders that were asked about while their placements were under way."""
        self._settled = settled
        self._orders: Counter[str] = Counter()
        self._asked: set[str] = set()

    @contextmanager
    def of(self, orders: Collection[str]) -> Iterator[None]:
        """Until the cache shows the outcome of all placements of these orders."""
        self._orders.update(orders)
        try:
            yield
        finally:
            self._orders.subtract(orders)
            for order in orders:
                if not self._orders[order]:
                    del self._orders[order]
            asked = {order for order in self._asked if order not in self._orders}
            self._asked -= asked
            if asked:
                self._settled(asked)

    def unsettled(self, order: str) -> bool:
        """Whether placements of the order are under way; if so, `settled` hears of the order later."""
        if order not in self._orders:
            return False
        self._asked.add(order)
        return True
