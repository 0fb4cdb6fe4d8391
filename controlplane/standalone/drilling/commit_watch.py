"""etcd's commits during a drill, watched directly: cycles with the time of their arrival, and orders' final phases."""

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


class CommitWatch:
    """`begin` once, then `run` in the background. Times are monotonic times of this process."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._revision = 0
        self._changed = asyncio.Condition()
        self._first_cycle: dict[int, float] = {}
        self.ends: dict[str, str] = {}

    async def begin(self) -> None:
        """Fixes the revision after which every commit is seen: no order may be offered earlier."""
        self._revision = await self._store.revision()
        async for page in self._store.pages(_CYCLES, revision=self._revision, keys_only=True):
            for value in page.values:
                self._cycle(value.key)

    async def run(self) -> None:
        """Follows etcd until cancelled."""
        async with asyncio.TaskGroup() as watching:
            watching.create_task(self._follow(_CYCLES, lambda event: self._cycle(event.key)))
            watching.create_task(self._follow(_STATUS, self._status))

    async def _follow(self, prefix: str, handle: Callable[[history.KeyChange], None]) -> None:
        async for batch in watch(self._store.channels, prefix, self._revision + 1):
            for change in batch.changes:
                handle(history.of_change(change))
            async with self._changed:
                self._changed.notify_all()

    def _cycle(self, key: str) -> None:
        parsed = keys.parse(key)
        if parsed is not None:
            self._first_cycle.setdefault(int(parsed[1][0]), self._clock.monotonic())

    def _status(self, event: history.KeyChange) -> None:
        if isinstance(event.object, OrderStatus) and event.object.phase in FINAL_ORDER:
            self.ends[event.parts[0]] = event.object.phase

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns once the condition holds; the condition is tested again after every watched change."""
        async with self._changed:
            await self._changed.wait_for(condition)

    async def ended_more(self, seconds: float) -> bool:
        """Whether another order ended within these seconds."""
        before = len(self.ends)
        try:
            async with asyncio.timeout(seconds):
                await self.until(lambda: len(self.ends) > before)
        except TimeoutError:
            return False
        return True

    def worked(self, epoch: int) -> bool:
        """Whether this epoch has committed a cycle."""
        return epoch in self._first_cycle

    def next_cycle(self, epoch: int) -> float | None:
        """The time at which the first cycle of a later epoch arrived; None before."""
        return min((at for later, at in self._first_cycle.items() if later > epoch), default=None)

    async def leader(self) -> tuple[int, Candidate] | None:
        """The epoch and candidate at the head of the election queue."""
        candidates: list[tuple[int, Candidate]] = []
        async for page in self._store.pages(keys.CANDIDATES.prefix):
            for value in page.values:
                candidate = history.of_value(value).object
                if isinstance(candidate, Candidate):
                    candidates.append((value.create_revision, candidate))
        return min(candidates, key=lambda entry: entry[0], default=None)
