"""All checks of history behind a single listener, so that history is read once for all checks."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.verify.history import KeyChange
from controlplane.verify.p1_fenced import FencedCheck
from controlplane.verify.p2_orders import OrdersCheck
from controlplane.verify.p3_attempts import AttemptsCheck
from controlplane.verify.p4_claims import UnheldClaims
from controlplane.verify.p4_exclusive import ExclusiveCheck
from controlplane.verify.p5_capacity import CapacityCheck
from controlplane.verify.p7_lifecycle import LifecycleCheck
from controlplane.verify.p7_strays import StrayPlacements
from controlplane.verify.p9_leader import LeaderCheck
from controlplane.verify.p9_orders import UnfinishedOrders, UnhandledEnds, UnreportedPlacements
from controlplane.verify.present import Present
from controlplane.verify.promise_verdicts import HistoryListener
from controlplane.verify.suspicion import Suspicions


class Checks:
    """`suspicions` concern the state at the end of history; watching etcd on settles them, then they are reported."""

    def __init__(self) -> None:
        self.fenced = FencedCheck()
        self.orders = OrdersCheck()
        self.attempts = AttemptsCheck()
        self.exclusive = ExclusiveCheck()
        self.capacity = CapacityCheck()
        self.lifecycle = LifecycleCheck()
        self.leader = LeaderCheck()
        questions = (StrayPlacements(), UnheldClaims(), UnreportedPlacements(), UnhandledEnds(), UnfinishedOrders())
        self.suspicions = Suspicions(Present(), questions)
        self._all: tuple[HistoryListener, ...] = (
            self.fenced,
            self.orders,
            self.attempts,
            self.exclusive,
            self.capacity,
            self.lifecycle,
            self.leader,
            self.suspicions,
        )

    def start(self, state: Sequence[KeyChange]) -> None:
        for check in self._all:
            check.start(state)

    def change(self, revision: int, changes: Sequence[KeyChange]) -> None:
        for check in self._all:
            check.change(revision, changes)

    def report_suspicions(self) -> None:
        """Adds the suspicions that lasted to the promises that they break."""
        self.suspicions.report({"P4": self.exclusive.tally, "P7": self.lifecycle.tally, "P9": self.leader.tally})
