"""The world of a cycle, built from the cache: targets with their room, claims, owners, rules, settings.

Follows the ledgers and keeps what did not change. A target or an order that raises is reported and left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TypeVar

from controlplane.cache.effective_settings import settings_of
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.snapshot import Snapshot
from controlplane.engine.made_room import made_rooms
from controlplane.engine.rules.book import Book
from controlplane.engine.target_columns import TargetColumns
from controlplane.engine.world import TargetRow, World, limits_of, priority_of, row_of, spread_of
from controlplane.model.isolation import Bystander, Ward
from controlplane.store import keys

R = TypeVar("R")


class WorldBuilder:
    """Builds the world from the same ledgers again and again; rows of targets that did not change are kept."""

    def __init__(self, ledgers: Ledgers, ward: Ward | None = None) -> None:
        """Targets held by the ward are left out of the world; errors of a target or an order are reported to the
        ward."""
        self._ledgers = ledgers
        self._ward: Ward = ward or Bystander()
        self._rows: dict[str, tuple[tuple[object, ...], TargetRow | None]] = {}
        self._floor = TargetColumns(())
        self._book: tuple[tuple[tuple[str, int], ...], Book] = ((), Book.of(()))

    def report_to(self, ward: Ward) -> None:
        """Replaces the ward from now on."""
        self._ward = ward

    def build(self, now: datetime, *, spread_orders: Iterable[str] = (), preempting: bool = False) -> World:
        """`spread_orders` are the waiting orders that keep their tasks on different targets."""
        snapshot = self._ledgers.cache.snapshot
        names = sorted(snapshot.names(keys.TARGETS))
        rows = tuple(row for row in (self._row(name, snapshot) for name in names) if row is not None)
        facts = tuple(row.facts for row in rows)
        if facts != self._floor.targets:
            self._floor = TargetColumns(facts)
            self._rows = {name: self._rows[name] for name in names if name in self._rows}
        book = self.book(snapshot)
        return World(
            revision=snapshot.revision,
            now=now,
            settings=settings_of(snapshot),
            floor=self._floor,
            targets=rows,
            held={entry.parts[0]: entry.readable() for entry in snapshot.all(keys.CLAIMS)},
            book=book,
            owners=self._ledgers.owners.frozen(),
            limited=self._limited(book, now) if book.limits else {},
            spread=self._spread(spread_orders),
            priorities=self._priorities(book, now) if preempting else {},
            made_rooms=made_rooms(snapshot),
        )

    def _limited(self, book: Book, now: datetime) -> dict[str, int]:
        """How many placed tasks count against each limiting rule."""
        counted: Counter[str] = Counter()
        for names in self._of_each(self._ledgers.orders, lambda ledger: limits_of(ledger, book, self._floor, now)):
            counted.update(names)
        return dict(counted)

    def _spread(self, orders: Iterable[str]) -> dict[str, Mapping[str, frozenset[str]]]:
        """The targets with tasks of these orders which keep apart from each other."""
        return dict(self._of_each(orders, lambda ledger: (ledger.order.id, spread_of(ledger))))

    def _priorities(self, book: Book, now: datetime) -> dict[str, int]:
        """The effective priority of every order under way."""
        return dict(
            self._of_each(self._ledgers.orders, lambda ledger: (ledger.order.id, priority_of(ledger, book, now)))
        )

    def _of_each(self, orders: Iterable[str], ask: Callable[[OrderLedger], R]) -> Iterator[R]:
        """The answer of each order under way; an order which raises is reported, and the other orders answer."""
        for identity in orders:
            ledger = self._ledgers.orders.get(identity)
            if ledger is None or (not self._ward.empty() and self._ward.holds("Order", identity)):
                continue
            try:
                yield ask(ledger)
            except Exception as error:  # noqa: BLE001 - supervision
                self._ward.failed("Order", identity, error)

    def book(self, snapshot: Snapshot) -> Book:
        """The rules as stored now, compiled once."""
        entries = sorted(snapshot.all(keys.RULES), key=lambda entry: entry.parts)
        key = tuple((entry.parts[0], entry.revision) for entry in entries)
        if key != self._book[0]:
            rules = (entry.readable() for entry in entries)
            self._book = (key, Book.of(rule for rule in rules if rule is not None))
        return self._book[1]

    def _row(self, name: str, snapshot: Snapshot) -> TargetRow | None:
        if not self._ward.empty() and self._ward.holds("Target", name):
            return None
        there = self._ledgers.targets.get(name)
        config = snapshot.get(keys.TARGETS, name)
        status = snapshot.get(keys.TARGET_STATUS, name)
        live = snapshot.live_entry(name)
        made = snapshot.get(keys.MADE, name)
        # A changed key has a new entry object; a ledger counts changes in `version`.
        cluster = snapshot.single(keys.CLUSTER_STATUS)
        key = (config, status, live, made, there, there.version if there is not None else 0, cluster)
        known = self._rows.get(name)
        if known is None or known[0] != key:
            try:
                known = (key, row_of(name, snapshot, self._ledgers))
            except Exception as error:  # noqa: BLE001 - supervision: the other targets are there
                self._rows.pop(name, None)
                self._ward.failed("Target", name, error)
                return None
            self._rows[name] = known
        return known[1]
