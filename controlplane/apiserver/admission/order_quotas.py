"""The number of orders and tasks waiting or under way, of one owner and of all owners, as this replica sees it.

Orders admitted by this replica count from their admission on, not only when the cache has heard of them, so a burst of
submits through one replica ends exactly at the limit. Two replicas may each admit one order more at the same moment.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple, Self

from controlplane.cache.effective_settings import settings_of
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Delta
from controlplane.model.errors import LimitExceeded
from controlplane.model.order import Order
from controlplane.model.settings import Settings
from controlplane.store import keys

# The time until the retry of a refused submit: long enough for some hundred orders to be placed.
RETRY_AFTER_SECONDS = 5.0


class ComingOrder(NamedTuple):
    """The share of an admitted order in the quotas until the ledgers know the order."""

    owner: str
    tasks: int


# Of all owners together: the leader looks after each recurring order for its whole life.
MOST_TEMPLATES = 10_000


class Quotas:
    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        # Admitted orders unknown to the ledgers; their number and that of their tasks, by owner; all their tasks.
        self._coming: dict[str, ComingOrder] = {}
        self._count: Counter[str] = Counter()
        self._tasks_of: Counter[str] = Counter()
        self._tasks = 0
        self._answered: deque[tuple[int, str]] = deque()
        # After the ledgers, which are of an earlier stage, so that no order is counted nowhere.
        ledgers.cache.subscribe(self._hear)

    def entrance(self) -> Entrance:
        return Entrance(self)

    def enter(self, order: Order) -> bool:
        """Takes a place for the order, or needs none; LimitExceeded when there is no place left."""
        if order.id in self._coming or order.id in self._ledgers.orders:
            return False
        self._sweep()
        settings = settings_of(self._ledgers.cache.snapshot)
        if order.schedule is not None:
            self._check_templates(order.owner, settings)
        else:
            self._check_owner(order, settings)
        self._check_waiting(settings)
        self._coming[order.id] = ComingOrder(order.owner, order.tasks_total)
        self._count[order.owner] += 1
        self._tasks_of[order.owner] += order.tasks_total
        self._tasks += order.tasks_total
        return True

    def _check_owner(self, order: Order, settings: Settings) -> None:
        owner, tasks, quota = order.owner, order.tasks_total, settings.quota_of(order.owner)
        if quota is None:
            return
        there = self._ledgers.open_orders[owner] + self._count[owner]
        if quota.orders is not None and there >= quota.orders:
            message = f"owner: {owner!r} has {there} orders under way and may have {quota.orders}"
            raise LimitExceeded(message, field="owner")
        wait = self._ledgers.waiting_tasks_of[owner] + self._tasks_of[owner]
        if quota.waiting_tasks is not None and wait + tasks > quota.waiting_tasks:
            message = (
                f"owner: {owner!r} has {wait} tasks waiting and may have {quota.waiting_tasks}, so not {tasks} more"
            )
            raise LimitExceeded(message, field="owner")

    def _check_templates(self, owner: str, settings: Settings) -> None:
        """An owner may have as many recurring orders as orders under way; each run takes a place, too."""
        templates = self._ledgers.open_templates
        if templates.total() + len(self._coming) >= MOST_TEMPLATES:
            message = f"schedule: there are as many recurring orders as may be ({MOST_TEMPLATES})"
            raise LimitExceeded(message, field="schedule")
        quota = settings.quota_of(owner)
        there = templates.of(owner) + self._count[owner]
        if quota is not None and quota.orders is not None and there >= quota.orders:
            message = f"owner: {owner!r} has {there} recurring orders and may have {quota.orders}"
            raise LimitExceeded(message, field="owner")

    def _check_waiting(self, settings: Settings) -> None:
        """Waiting orders are bounded over all owners: they are memory and work of every replica."""
        orders, tasks = self._ledgers.waiting_orders + len(self._coming), self._ledgers.waiting_tasks + self._tasks
        if orders >= settings.max_waiting_orders:
            raise _too_many("orders", f"max_waiting_orders is {settings.max_waiting_orders}")
        if tasks >= settings.max_waiting_tasks:
            raise _too_many("tasks", f"max_waiting_tasks is {settings.max_waiting_tasks}")

    def stored(self, identity: str, revision: int) -> None:
        """The order exists. Its place stays taken until the cache has reached the revision."""
        if identity in self._coming:
            self._answered.append((revision, identity))

    def leave(self, identity: str) -> None:
        place = self._coming.pop(identity, None)
        if place is None:
            return
        self._tasks -= place.tasks
        self._tasks_of[place.owner] -= place.tasks
        self._count[place.owner] -= 1
        if not self._count[place.owner]:
            del self._count[place.owner], self._tasks_of[place.owner]

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        if self._coming:
            for delta in deltas:
                if delta.tree == keys.ORDERS:
                    self.leave(delta.parts[0])

    def _sweep(self) -> None:
        """Gives back the places of orders which came and went unheard, as in a gap of the watch."""
        while self._answered and self._answered[0][0] <= self._ledgers.cache.revision:
            self.leave(self._answered.popleft()[1])


def _too_many(waiting: str, rule: str) -> LimitExceeded:
    """Without the number: it counts the work of all owners."""
    again = f"try again in {RETRY_AFTER_SECONDS:.0f} s"
    message = f"too many {waiting} wait for targets, so no order is taken now: {rule}; {again}"
    return LimitExceeded(message, retry_after_seconds=RETRY_AFTER_SECONDS)


class Entrance:
    """The places of orders being written: places of orders which were not stored are given back at the end."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._inside: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for identity in self._inside:
            self._quotas.leave(identity)

    def enter(self, order: Order) -> None:
        """LimitExceeded when there is no place left for the order."""
        if self._quotas.enter(order):
            self._inside.add(order.id)

    def stored(self, identity: str, revision: int) -> None:
        if identity in self._inside:
            self._inside.discard(identity)
            self._quotas.stored(identity, revision)
