"""The leader's writes: items of all components travel together, in transactions that carry the Fence.

Each item keeps its own compares. A refused fence is Deposed: stop acting. Before a caller gets OutcomeUnknown, the
leader has re-fenced itself: the write is either visible in the cache by then, or etcd will never apply the write.
Leader code has no other way to write.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from controlplane.aio.group_commit import GroupCommit
from controlplane.model.errors import LimitExceeded
from controlplane.store import transaction
from controlplane.store.transaction import Item, Outcome


class FencedTerm(Protocol):
    """A leader's term, as far as writes need to know."""

    @property
    def epoch(self) -> int: ...

    def commit(self, items: Sequence[Item]) -> Awaitable[Sequence[Outcome]]:
        """Commits all items in one fenced transaction."""
        ...


class FencedWriter:
    def __init__(self, leadership: FencedTerm) -> None:
        self._leadership = leadership
        self._group: GroupCommit[Item, Outcome] = GroupCommit(
            leadership.commit, transaction.group_size, gather_seconds=0.01, in_flight=4
        )

    @property
    def epoch(self) -> int:
        return self._leadership.epoch

    async def write(self, item: Item) -> Outcome:
        """LimitExceeded when etcd would refuse the item as too large; other items of the group are not disturbed."""
        transaction.check(item)
        return await self._group.submit(item)

    async def write_all(self, items: Sequence[Item]) -> list[Outcome]:
        """Sends all items, which need not stay together; the error of an item is raised after all items were answered.

        An item that is too large for etcd is not sent; LimitExceeded is raised after all other items were answered.
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
