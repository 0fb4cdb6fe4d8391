"""The writes of controllers: fenced, and over once the cache of this replica shows them.

A refused item is a Conflict, upon which the runner asks the controller again; the controller then reads a cache with
the write that won.
"""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.cache.ledgers import Source
from controlplane.model.errors import Conflict
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, together


class ControllerWriter:
    def __init__(self, writer: FencedWriter, cache: Source) -> None:
        self._writer = writer
        self._cache = cache

    @property
    def epoch(self) -> int:
        return self._writer.epoch

    async def write(self, items: Sequence[Item]) -> None:
        """Writes independent items; Conflict when an item was refused, after all others were written."""
        if items and not all(await self._settle(items)):
            raise Conflict("a record that the write compares has changed meanwhile")

    async def write_together(self, items: Sequence[Item]) -> None:
        """Writes all items or none."""
        await self.write([together(items)])

    async def offer(self, item: Item) -> bool:
        """Writes the item unless etcd refuses; returns whether the item was written."""
        (succeeded,) = await self._settle([item])
        return succeeded

    async def _settle(self, items: Sequence[Item]) -> list[bool]:
        outcomes = await self._writer.write_all(items)
        await self._cache.reached(max(outcome.revision for outcome in outcomes))
        return [outcome.succeeded for outcome in outcomes]
