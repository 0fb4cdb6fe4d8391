"""Demand: the waiting work that a policy serves and that its targets would take, and since when it waits.

Follows the ledgers; a change costs a look at the touched orders, at the next question. The wait of an order counts on
the leader's own monotonic clock from when the order was seen waiting: a new leader counts anew, which is late but never
early.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.engine.signature import Signature, signature_of
from controlplane.engine.target_columns import TargetColumns
from controlplane.engine.world import facts_of
from controlplane.model import times
from controlplane.model.quantity import EPSILON
from controlplane.model.scalepolicy import ScalePolicy, TargetTemplate, WorkSelector
from controlplane.model.target import Target
from controlplane.survey.backlog import Backlog
from controlplane.survey.world_builder import WorldBuilder


class EligibleWork:
    """The work that counts for a policy: served by the policy, and taken by a target of its largest size."""

    def __init__(self, policy: ScalePolicy) -> None:
        template = policy.template or TargetTemplate()
        self._serves = policy.serves or WorkSelector()
        self._capacity = policy.steps()[-1]
        target = Target(driver=template.driver, region=template.region, labels=template.labels)
        self._floor = TargetColumns((facts_of(target, None, self._capacity),))

    def takes(self, signature: Signature) -> bool:
        """Whether such a task would run there. A task that cannot be judged is not taken, and stops no other task."""
        try:
            return self._takes(signature)
        except Exception:  # noqa: BLE001 - supervision: the scheduler meets the same error, and tells of it
            return False

    def _takes(self, signature: Signature) -> bool:
        kind = signature.kind
        serves = self._serves
        if serves.class_ not in ("", kind.class_) or serves.region not in ("", signature.region):
            return False
        if serves.labels.items() - dict(kind.labels).items():
            return False
        if any(amount > self._capacity.get(name, 0) + EPSILON for name, amount in signature.needs):
            return False
        return bool(len(self._floor.static(signature).rows))


class Demand:
    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self._builder = WorldBuilder(ledgers)
        self._backlog = Backlog(ledgers)
        self._touched: set[str] = set(ledgers.orders)
        # Orders in the order in which they were seen waiting; and orders whose time has not come.
        self._since: dict[str, float] = {}
        self._later: set[str] = set()

    def touch(self, orders: Iterable[str]) -> None:
        self._touched.update(orders)

    def look(self, wall: datetime, monotonic: float) -> None:
        """Catches up with the touched orders."""
        touched, self._touched = self._touched, set()
        self._backlog.update(touched, wall, self._builder.book(self._ledgers.cache.snapshot))
        later, self._later = self._later, set()
        moment = times.show(wall)
        for order in sorted(touched | later):
            ledger = self._ledgers.orders.get(order)
            wants = ledger is not None and ledger.wants_room()
            if ledger is not None and wants and _is_ready(ledger, moment):
                self._since.setdefault(order, monotonic)
                continue
            self._since.pop(order, None)
            if wants:
                self._later.add(order)

    def waiting(self, taker: EligibleWork) -> int:
        """The number of tasks that wait to be placed; a gang counts as a whole or not at all."""
        return sum(
            queue.tasks
            for queue in self._backlog.queues()
            if all(taker.takes(part) for part in (queue.parts or (queue.signature,)))
        )

    def waited_seconds(self, taker: EligibleWork, monotonic: float) -> float:
        """The time for which the longest-waiting order has had waiting tasks."""
        for order, since in self._since.items():
            ledger = self._ledgers.orders.get(order)
            for resolved in ledger.resolved.jobs if ledger is not None else ():
                name = resolved.job.name
                if ledger is not None and ledger.pending_of(name) and taker.takes(signature_of(ledger, resolved.job)):
                    return monotonic - since
        return 0.0

    def next_time(self) -> str | None:
        """When more tasks wait by time alone."""
        return self._backlog.next_time()


def _is_ready(ledger: OrderLedger, moment: str) -> bool:
    """An order that cannot be judged is not ready, and stops no other order."""
    try:
        return any(ledger.ready(job, moment) > 0 for job in ledger.jobs)
    except Exception:  # noqa: BLE001 - supervision: the scheduler meets the same error, and tells of it
        return False
