"""The leader's way to write: what its components send travels together, in transactions that carry the Fence.

Each item keeps its own compares. A refused fence is Deposed: stop acting. A write whose outcome is unknown was settled
by the leadership before the caller hears OutcomeUnknown: whatever happened is in the picture by then, and it cannot
happen any more if it did not. There is no other way for leader code to write.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from controlplane.aio.group_commit import GroupCommit
from controlplane.model.errors import LimitExceeded
from controlplane.store import transaction
from controlplane.store.transaction import Item, Outcome


class Leadership(Protocol):
    """One term, as far as a write needs to know it."""

    @property
    def epoch(self) -> int: ...

    def commit(self, items: Sequence[Item]) -> Awaitable[Sequence[Outcome]]:
        """Commits all items in one fenced transaction."""
        ...


class FencedWriter:
    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self._group: GroupCommit[Item, Outcome] = GroupCommit(
            leadership.commit, transaction.front, gather_seconds=0.01, in_flight=4
        )

    @property
    def epoch(self) -> int:
        return self._leadership.epoch

    async def write(self, item: Item) -> Outcome:
        """LimitExceeded when etcd would not take the item, which then disturbs no other that would travel with it."""
        transaction.check(item)
        return await self._group.submit(item)

    async def write_all(self, items: Sequence[Item]) -> list[Outcome]:
        """All are sent, and need not stay together; the error of one is raised after every one was answered.

        One that etcd would not take is not sent; its LimitExceeded is raised after the others were answered.
        """
        too_large = [error for item in items if (error := _refusal(item)) is not None]
        fitting = [item for item in items if _refusal(item) is None] if too_large else items
        outcomes: list[Outcome] = []
        for result in (*await self._group.submit_all(fitting), *too_large):
            if isinstance(result, Exception):
                raise result
            outcomes.append(result)
        return outcomes


def _refusal(item: Item) -> LimitExceeded | None:
    try:
        transaction.check(item)
    except LimitExceeded as error:
        return error
    return None
