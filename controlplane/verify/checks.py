"""All checks that history feeds, as one listener: history is read once for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.verify.history import Event
from controlplane.verify.p1_fenced import Fenced
from controlplane.verify.p2_orders import Orders
from controlplane.verify.p3_attempts import Attempts
from controlplane.verify.p4_claims import Unheld
from controlplane.verify.p4_exclusive import Exclusive
from controlplane.verify.p5_capacity import Capacity
from controlplane.verify.p7_lifecycle import Lifecycle
from controlplane.verify.p7_strays import Strays
from controlplane.verify.p9_leader import Leader
from controlplane.verify.p9_orders import Unfinished, Unreported, Untaken
from controlplane.verify.present import Present
from controlplane.verify.suspicion import Suspicions
from controlplane.verify.verdict import Listener


class Checks:
    """`suspicions` are about the state at the end of history; they are settled by looking on, and then told."""

    def __init__(self) -> None:
        self.fenced = Fenced()
        self.orders = Orders()
        self.attempts = Attempts()
        self.exclusive = Exclusive()
        self.capacity = Capacity()
        self.lifecycle = Lifecycle()
        self.leader = Leader()
        questions = (Strays(), Unheld(), Unreported(), Untaken(), Unfinished())
        self.suspicions = Suspicions(Present(), questions)
        self._all: tuple[Listener, ...] = (
            self.fenced,
            self.orders,
            self.attempts,
            self.exclusive,
            self.capacity,
            self.lifecycle,
            self.leader,
            self.suspicions,
        )

    def start(self, state: Sequence[Event]) -> None:
        for check in self._all:
            check.start(state)

    def change(self, revision: int, changes: Sequence[Event]) -> None:
        for check in self._all:
            check.change(revision, changes)

    def tell_suspicions(self) -> None:
        """Adds what is left of them to the promises that they break."""
        self.suspicions.tell({"P4": self.exclusive.tally, "P7": self.lifecycle.tally, "P9": self.leader.tally})
