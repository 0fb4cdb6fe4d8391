"""The leader's way to write: every transaction carries the Fence, or is not sent.

Items of all leader components travel together (nested, each with its own compares). A refused fence is Deposed. A
write whose outcome is unknown may have happened or may still happen: the leader then rewrites its own key, which
makes every write sent before it impossible from there on, and goes on when its own watch has delivered that
rewrite. Whoever sent the write is told OutcomeUnknown and reads again: its picture then contains what happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from controlplane.aio.clock import Clock
from controlplane.aio.group_commit import GroupCommit
from controlplane.model.errors import Deposed, OutcomeUnknown
from controlplane.store import transaction
from controlplane.store.kv import Store
from controlplane.store.transaction import Fence, Item, Outcome

log = structlog.get_logger(__name__)

_SHORTEST_SECONDS = 0.05


class Leadership(Protocol):
    """One term, as far as a write needs to know it."""

    @property
    def fence(self) -> Fence: ...

    def deadline(self) -> float: ...

    async def proclaim(self) -> None: ...


class FencedWriter:
    def __init__(self, store: Store, leadership: Leadership, clock: Clock) -> None:
        self._store = store
        self._leadership = leadership
        self._clock = clock
        self._group: GroupCommit[Item, Outcome] = GroupCommit(
            self._flush, transaction.front, gather_seconds=0.005, in_flight=4
        )
        self._proclaiming = asyncio.Lock()

    @property
    def epoch(self) -> int:
        return self._leadership.fence.epoch

    async def write(self, item: Item) -> Outcome:
        """Raises Deposed when this leader no longer leads, OutcomeUnknown as the module says."""
        return await self._group.submit(item)

    async def _flush(self, items: Sequence[Item]) -> Sequence[Outcome]:
        fence = self._leadership.fence
        left = self._leadership.deadline() - self._clock.monotonic()
        if left <= 0:
            raise Deposed(f"the lease of epoch {fence.epoch} may have run out")
        try:
            return await self._store.commit_group(items, fence=fence, timeout=max(left, _SHORTEST_SECONDS))
        except OutcomeUnknown as error:
            log.warning("a leader write has an unknown outcome", epoch=fence.epoch, error=str(error))
            async with self._proclaiming:
                if self._leadership.fence == fence:
                    await self._leadership.proclaim()
            raise
