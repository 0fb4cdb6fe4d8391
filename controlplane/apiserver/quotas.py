"""How many orders an owner may have under way, as this replica sees it.

What this replica has let in counts from that moment on, not only when its cache has heard of it, so that a burst of
submits through one replica ends exactly at the limit. Two replicas may each let one more in at the same moment.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Self

from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Delta
from controlplane.cache.settings import settings_of
from controlplane.model.errors import LimitExceeded
from controlplane.model.order import Order
from controlplane.model.settings import EVERYONE


class Quotas:
    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        # Orders that were let in and that the ledgers do not know yet: whose they are, and how many each owner has.
        self._coming: dict[str, str] = {}
        self._count: Counter[str] = Counter()
        self._answered: deque[tuple[int, str]] = deque()
        # After the ledgers themselves, so that no order is counted nowhere.
        ledgers.cache.subscribe(self._hear)

    def entrance(self) -> Entrance:
        return Entrance(self)

    def enter(self, order: Order) -> bool:
        """Takes a place for the order, or needs none; LimitExceeded when its owner has no place left."""
        quotas = settings_of(self._ledgers.cache.snapshot).quotas
        quota = quotas.get(order.owner) or quotas.get(EVERYONE)
        if quota is None or quota.orders is None or order.id in self._coming or order.id in self._ledgers.orders:
            return False
        self._sweep()
        there = self._ledgers.open_orders[order.owner] + self._count[order.owner]
        if there >= quota.orders:
            message = f"owner: {order.owner!r} has {there} orders under way and may have {quota.orders}"
            raise LimitExceeded(message, field="owner")
        self._coming[order.id] = order.owner
        self._count[order.owner] += 1
        return True

    def stored(self, identity: str, revision: int) -> None:
        """The order is there. It keeps its place until the cache has reached that revision."""
        if identity in self._coming:
            self._answered.append((revision, identity))

    def leave(self, identity: str) -> None:
        owner = self._coming.pop(identity, None)
        if owner is None:
            return
        self._count[owner] -= 1
        if not self._count[owner]:
            del self._count[owner]

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        if self._coming:
            for delta in deltas:
                if delta.tree == "config/orders":
                    self.leave(delta.parts[0])

    def _sweep(self) -> None:
        """Those that came and went unheard, as in a gap of the watch."""
        while self._answered and self._answered[0][0] <= self._ledgers.cache.revision:
            self.leave(self._answered.popleft()[1])


class Entrance:
    """The places of orders that are being written: given back at its end for those that nobody called stored."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._inside: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for identity in self._inside:
            self._quotas.leave(identity)

    def enter(self, order: Order) -> None:
        """LimitExceeded when the order's owner has no place left."""
        if self._quotas.enter(order):
            self._inside.add(order.id)

    def stored(self, identity: str, revision: int) -> None:
        if identity in self._inside:
            self._inside.discard(identity)
            self._quotas.stored(identity, revision)
