"""The survey: all that waits, kept current in every replica, so that a new leader need not look at every order first.

While a replica stands by, its survey follows the ledgers in slices, with pauses that leave the loop to who asks this
replica something. In a term the scheduler asks for the survey instead: what the slices had not reached is taken in
before a cycle is decided, so that a cycle never depends on who followed what before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain

from controlplane.aio.clock import Clock
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.engine.backlog import Backlog
from controlplane.engine.rules.book import Book
from controlplane.engine.world import Lookout
from controlplane.model.isolation import Bystander, Ward

# An order that changes several times within a moment is looked at once.
_GATHER_SECONDS = 0.1
# So many orders take up to some milliseconds; then whatever else waits for the loop has its turn.
_SLICE = 500
_PAUSE_SECONDS = 0.02
# So many a cycle of a leader looks at itself, in some tens of milliseconds at most: each turn that it gives to others
# may take as long.
_REST = 4000


class Survey:
    """Lives as long as its replica. Nothing of it would be missed by who looks at the ledgers anew."""

    def __init__(self, ledgers: Ledgers, clock: Clock) -> None:
        self._ledgers = ledgers
        self._clock = clock
        self.lookout = Lookout(ledgers)
        self.backlog = Backlog(ledgers)
        self._ward: Ward | None = None
        # Orders that the backlog has to look at: those that changed since the last round, and the rest of that round,
        # last first.
        self._changed = set(ledgers.orders)
        self._round: list[str] = []
        self._stirred = asyncio.Event()
        self._stirred.set()
        ledgers.subscribe(self._hear)

    def _hear(self, touched: Touched) -> None:
        if touched.orders:
            self._changed |= touched.orders
            self._stirred.set()

    @property
    def behind(self) -> int:
        """How many orders are to be looked at."""
        return len(self._changed) + len(self._round)

    def changed(self) -> Iterator[str]:
        """The orders that are to be looked at."""
        return chain(self._changed, self._round)

    def begin(self, ward: Ward) -> None:
        """A term begins, whose scheduler alone changes the backlog until the term ends; failures go to its ward."""
        self._ward = ward
        self._changed |= self.backlog.report_to(ward)
        self.lookout.report_to(ward)

    def end(self) -> None:
        """The term is over: what was isolated in it would be tried by the next one."""
        self._ward = None
        self._changed |= self.backlog.report_to(Bystander())
        self.lookout.report_to(Bystander())
        self._stirred.set()

    def renew(self) -> None:
        """Begins from nothing, for who does not trust what is there, or has left it to a thread."""
        ward = self._ward or Bystander()
        self.lookout, self.backlog = Lookout(self._ledgers, ward), Backlog(self._ledgers, ward)
        self.look_at_all()

    def look_at_all(self) -> None:
        """Every order is to be looked at again."""
        self.look_at(self._ledgers.orders)

    def look_at(self, orders: Iterable[str]) -> None:
        """These orders are to be looked at again."""
        self._changed.update(orders)

    def take(self) -> set[str]:
        """The orders that are to be looked at; who takes them does that."""
        orders, self._changed, self._round = set(self.changed()), set(), []
        return orders

    async def catch_up(self, now: datetime, book: Book) -> None:
        """Looks at all but what a cycle can do itself, letting others have the loop between slices."""
        while self.behind > _REST:
            self._look_at_slice(now, book)
            await asyncio.sleep(0)

    async def follow(self) -> None:
        """Follows the ledgers while this replica does not lead; until cancelled."""
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            while self.behind and self._ward is None:
                self._look_at_slice(self._clock.wall(), self.lookout.book(self._ledgers.cache.snapshot))
                await self._clock.sleep(_PAUSE_SECONDS)
            await self._clock.sleep(_GATHER_SECONDS)

    def _look_at_slice(self, now: datetime, book: Book) -> None:
        self._changed |= self.backlog.turn_to(now, book)
        if not self._round:
            # In order of age, which is the order in which they wait.
            self._round = sorted(self._changed, reverse=True)
            self._changed = set()
        self.backlog.update(self._round[-_SLICE:], now, book)
        del self._round[-_SLICE:]
