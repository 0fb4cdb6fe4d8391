"""Frozen worlds, for questions long enough to be answered in a thread.

The replica's own ledgers move with every change and belong to the event loop. Questions here are asked of ledgers built
from a snapshot: one world at a time, so a storm of questions costs one core at most, and one world serves all waiting
questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from controlplane.aio.thread_team import QUESTIONS
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.past import ledgers_at, ledgers_of
from controlplane.cache.reflector import Cache
from controlplane.cache.snapshot import Snapshot
from controlplane.model.errors import Compacted, LimitExceeded, NotFound
from controlplane.model.leadership import Cycle
from controlplane.store import keys
from controlplane.store.kv import Store

R = TypeVar("R")

# A frozen world takes as much memory as the replica's own.
_KEEP_SECONDS = 5.0
MOST_WAITING = 100


class FrozenWorlds:
    def __init__(self, cache: Cache, store: Store) -> None:
        self._cache = cache
        self._store = store
        self._kept: Ledgers | None = None
        self._now = asyncio.Lock()
        self._then = asyncio.Lock()
        self._waiting = 0

    async def ask(self, question: Callable[[Ledgers], R]) -> R:
        """The answer on a world with at least the cache's present revision."""
        wanted = self._cache.revision
        with self._bounded():
            async with self._now:
                ledgers = self._kept
                if ledgers is None or ledgers.cache.revision < wanted:
                    ledgers = await QUESTIONS.run(ledgers_of, self._cache.snapshot)
                    self._keep(ledgers)
                return await QUESTIONS.run(question, ledgers)

    async def ask_of(self, cycle: Cycle, question: Callable[[Ledgers], R]) -> R:
        """The answer on the world of the cycle; Compacted when etcd has forgotten the cycle's revision."""
        with self._bounded():
            async with self._then:
                try:
                    ledgers = await ledgers_at(self._store, cycle.revision)
                except Compacted:
                    message = f"cycle {cycle.n} saw revision {cycle.revision}, which etcd does not remember any more"
                    raise Compacted(message) from None
                return await QUESTIONS.run(question, ledgers)

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        """Questions are answered in turn; beyond so many, no client would still wait for the answer."""
        if self._waiting >= MOST_WAITING:
            message = f"this replica answers {MOST_WAITING} such questions already; try again later, or another replica"
            raise LimitExceeded(message, retry_after_seconds=1.0)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def _keep(self, ledgers: Ledgers) -> None:
        self._kept = ledgers
        asyncio.get_running_loop().call_later(_KEEP_SECONDS, self._drop, ledgers)

    def _drop(self, ledgers: Ledgers) -> None:
        if self._kept is ledgers:
            self._kept = None


def cycle_of(snapshot: Snapshot, n: int) -> Cycle:
    """The newest record of the cycle number; NotFound when none is readable."""
    name = keys.padded(n)
    entries = [entry for entry in snapshot.all(keys.CYCLES) if entry.parts[1] == name]
    for entry in sorted(entries, key=lambda entry: entry.parts[0], reverse=True):
        if (cycle := entry.readable()) is not None:
            return cycle
    raise NotFound(f"cycle: there is no cycle {n} on record", field="cycle")
