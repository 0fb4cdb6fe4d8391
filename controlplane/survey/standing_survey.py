"""The survey: all waiting orders, kept current in every replica, so that a new leader need not begin with all orders.

While a replica stands by, the survey follows the ledgers in slices, with pauses which leave the loop to requests to
this replica. In a term the scheduler drives the survey instead: orders not yet reached by the slices are taken in
before a cycle is decided, so a cycle never depends on how far the survey had followed before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain

from controlplane.aio.clock import Clock
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.engine.rules.book import Book
from controlplane.model.isolation import Bystander, Ward
from controlplane.survey.backlog import Backlog
from controlplane.survey.world_builder import WorldBuilder

# An order that changes several times within a moment is looked at once.
_GATHER_SECONDS = 0.1
# So many orders take up to some milliseconds; then other work of the loop has its turn.
_SLICE = 500
_PAUSE_SECONDS = 0.02
# So many orders a leader's cycle looks at without giving up the loop, in some tens of milliseconds at most: each turn
# given to other work of the loop may take as long.
_REST = 4000


class Survey:
    """Lives as long as the replica. All state of the survey can be derived again from the ledgers."""

    def __init__(self, ledgers: Ledgers, clock: Clock) -> None:
        self._ledgers = ledgers
        self._clock = clock
        self.builder = WorldBuilder(ledgers)
        self.backlog = Backlog(ledgers)
        self._ward: Ward | None = None
        # Orders which the backlog has to look at: orders changed since the last round began, and the rest of the round,
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
        """How many orders are yet to be looked at."""
        return len(self._changed) + len(self._round)

    def changed(self) -> Iterator[str]:
        """The orders yet to be looked at."""
        return chain(self._changed, self._round)

    def begin(self, ward: Ward) -> None:
        """Begins a term. Only the scheduler of the term changes the backlog until the term ends; failures are reported
        to the ward of the term."""
        self._ward = ward
        self._changed |= self.backlog.report_to(ward)
        self.builder.report_to(ward)

    def end(self) -> None:
        """Ends the term. Orders isolated in the term are looked at again, as the next term would try them."""
        self._ward = None
        self._changed |= self.backlog.report_to(Bystander())
        self.builder.report_to(Bystander())
        self._stirred.set()

    def renew(self) -> None:
        """Rebuilds lookout and backlog from the ledgers, for when their state is not trusted or still read by a
        thread."""
        ward = self._ward or Bystander()
        self.builder, self.backlog = WorldBuilder(self._ledgers, ward), Backlog(self._ledgers, ward)
        self.look_at_all()

    def look_at_all(self) -> None:
        """Marks every order to be looked at again."""
        self.look_at(self._ledgers.orders)

    def look_at(self, orders: Iterable[str]) -> None:
        """Marks these orders to be looked at again."""
        self._changed.update(orders)

    def take(self) -> set[str]:
        """The orders yet to be looked at; looking at them becomes the duty of the caller."""
        orders, self._changed, self._round = set(self.changed()), set(), []
        return orders

    async def catch_up(self, now: datetime, book: Book) -> None:
        """Looks at orders until the rest is small enough for a cycle, giving up the loop between slices."""
        while self.behind > _REST:
            self._look_at_slice(now, book)
            await asyncio.sleep(0)

    async def follow(self) -> None:
        """Follows the ledgers while this replica does not lead; until cancelled."""
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            while self.behind and self._ward is None:
                self._look_at_slice(self._clock.wall(), self.builder.book(self._ledgers.cache.snapshot))
                await self._clock.sleep(_PAUSE_SECONDS)
            await self._clock.sleep(_GATHER_SECONDS)

    def _look_at_slice(self, now: datetime, book: Book) -> None:
        self._changed |= self.backlog.turn_to(now, book)
        if not self._round:
            # In order of age, since the backlog sorts waiting orders by age.
            self._round = sorted(self._changed, reverse=True)
            self._changed = set()
        self.backlog.update(self._round[-_SLICE:], now, book)
        del self._round[-_SLICE:]
