"""Worlds that stand still, for questions that take long enough to be answered in a thread.

The replica's own ledgers move with every change and belong to the event loop. What is asked here is asked of ledgers
built from a snapshot: one at a time, so that a storm of questions costs one core at most, and one picture serves all
who were waiting for it.
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
from controlplane.store.kv import Store

R = TypeVar("R")

# A picture of a big world is as big as the world.
_KEEP_SECONDS = 5.0
MOST_WAITING = 100


class StillWorlds:
    def __init__(self, cache: Cache, store: Store) -> None:
        self._cache = cache
        self._store = store
        self._kept: Ledgers | None = None
        self._now = asyncio.Lock()
        self._then = asyncio.Lock()
        self._waiting = 0

    async def ask(self, question: Callable[[Ledgers], R]) -> R:
        """The answer on a world that contains all that the cache does at this moment."""
        wanted = self._cache.revision
        with self._bounded():
            async with self._now:
                ledgers = self._kept
                if ledgers is None or ledgers.cache.revision < wanted:
                    ledgers = await QUESTIONS.run(ledgers_of, self._cache.snapshot)
                    self._keep(ledgers)
                return await QUESTIONS.run(question, ledgers)

    async def ask_of(self, cycle: Cycle, question: Callable[[Ledgers], R]) -> R:
        """The answer on the world that the cycle saw; Compacted when etcd does not remember it any more."""
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
        """A question is answered when all before it are; beyond so many, nobody would still wait for the answer."""
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
    """The newest record of that number; NotFound when none can be read."""
    name = f"{n:020d}"
    entries = [entry for entry in snapshot.all("cycles") if entry.parts[1] == name]
    for entry in sorted(entries, key=lambda entry: entry.parts[0], reverse=True):
        if (cycle := entry.sound(Cycle)) is not None:
            return cycle
    raise NotFound(f"cycle: there is no cycle {n} on record", field="cycle")
