"""Sending: orders whose placements a leader has sent and does not see yet.

While placements are under way nobody knows where those tasks stand. What a user wishes is compared by the placement
itself. An end that the leader decides on its own (a deadline, a failure that fails the order) has no key that a
placement could compare, so it waits until the picture shows the outcome. Kept in memory only: a write of an earlier
term is refused by its fence, so a new leader begins with nothing under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager


class Sending:
    def __init__(self, settled: Callable[[set[str]], None]) -> None:
        """`settled` hears of orders that somebody asked about while their placements were under way."""
        self._settled = settled
        self._orders: Counter[str] = Counter()
        self._asked: set[str] = set()

    @contextmanager
    def of(self, orders: Collection[str]) -> Iterator[None]:
        """Until the outcome of all placements of these orders is in the picture."""
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
        """Whether placements of the order are under way; if so, `settled` tells of it later."""
        if order not in self._orders:
            return False
        self._asked.add(order)
        return True
