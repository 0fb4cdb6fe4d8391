"""All checks that history feeds, as one listener: history is read once for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.verify.history import Event
from controlplane.verify.p1_fenced import Fenced
from controlplane.verify.p2_orders import Orders
from controlplane.verify.p3_attempts import Attempts
from controlplane.verify.p4_exclusive import Exclusive
from controlplane.verify.p5_capacity import Capacity
from controlplane.verify.p7_lifecycle import Lifecycle
from controlplane.verify.p9_leader import Leader
from controlplane.verify.verdict import Listener


class Checks:
    def __init__(self) -> None:
        self.fenced = Fenced()
        self.orders = Orders()
        self.attempts = Attempts()
        self.exclusive = Exclusive()
        self.capacity = Capacity()
        self.lifecycle = Lifecycle()
        self.leader = Leader()
        self._all: tuple[Listener, ...] = (
            self.fenced,
            self.orders,
            self.attempts,
            self.exclusive,
            self.capacity,
            self.lifecycle,
            self.leader,
        )

    def start(self, state: Sequence[Event]) -> None:
        for check in self._all:
            check.start(state)

    def change(self, revision: int, changes: Sequence[Event]) -> None:
        for check in self._all:
            check.change(revision, changes)
