"""What etcd commits while a drill runs, seen directly: cycles with the moment they became known, and orders' ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from controlplane.aio.clock import Clock
from controlplane.model.leadership import Candidate
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import OrderStatus
from controlplane.store import keys
from controlplane.store.kv import Store
from controlplane.store.watch import watch
from controlplane.verify import history

_CYCLES = f"{keys.ROOT}cycles/"
_STATUS = f"{keys.ROOT}status/orders/"


class Observer:
    """`begin` once, then `run` it in the background. Times are this process's monotonic ones."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._revision = 0
        self._changed = asyncio.Condition()
        self._first_cycle: dict[int, float] = {}
        self.ends: dict[str, str] = {}

    async def begin(self) -> None:
        """Fixes the revision after which everything is seen: orders must not be offered before."""
        self._revision = await self._store.revision()
        async for page in self._store.pages(_CYCLES, revision=self._revision, keys_only=True):
            for value in page.values:
                self._cycle(value.key)

    async def run(self) -> None:
        """Follows etcd until cancelled."""
        async with asyncio.TaskGroup() as watching:
            watching.create_task(self._follow(_CYCLES, lambda event: self._cycle(event.key)))
            watching.create_task(self._follow(_STATUS, self._status))

    async def _follow(self, prefix: str, see: Callable[[history.Event], None]) -> None:
        async for batch in watch(self._store.channels, prefix, self._revision + 1):
            for change in batch.changes:
                see(history.of_change(change))
            async with self._changed:
                self._changed.notify_all()

    def _cycle(self, key: str) -> None:
        parsed = keys.parse(key)
        if parsed is not None:
            self._first_cycle.setdefault(int(parsed[1][0]), self._clock.monotonic())

    def _status(self, event: history.Event) -> None:
        if isinstance(event.object, OrderStatus) and event.object.phase in FINAL_ORDER:
            self.ends[event.parts[0]] = event.object.phase

    async def until(self, seen: Callable[[], bool]) -> None:
        """Returns once it is so; looks again after every change that this observer sees."""
        async with self._changed:
            await self._changed.wait_for(seen)

    async def ended_more(self, seconds: float) -> bool:
        """Whether another order ended within that time."""
        seen = len(self.ends)
        try:
            async with asyncio.timeout(seconds):
                await self.until(lambda: len(self.ends) > seen)
        except TimeoutError:
            return False
        return True

    def worked(self, epoch: int) -> bool:
        """Whether this epoch has committed a cycle."""
        return epoch in self._first_cycle

    def next_cycle(self, epoch: int) -> float | None:
        """When the first cycle of a later epoch became known."""
        return min((at for later, at in self._first_cycle.items() if later > epoch), default=None)

    async def leader(self) -> tuple[int, Candidate] | None:
        """The epoch and the candidate that is first in the queue."""
        found: list[tuple[int, Candidate]] = []
        async for page in self._store.pages(keys.ELECTION):
            for value in page.values:
                candidate = history.of_value(value).object
                if isinstance(candidate, Candidate):
                    found.append((value.create_revision, candidate))
        return min(found, key=lambda entry: entry[0], default=None)
