"""The world as it was: a snapshot at a past revision, listed from etcd's history, and ledgers that stand still.

Still ledgers equal those that followed every change up to the revision. Nothing moves them any more, so they may be
read in another thread, where the ledgers of a running replica may not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from immutables import Map

from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Delta, Listener
from controlplane.cache.snapshot import Snapshot, Tree, entry_of, with_entry
from controlplane.model.errors import Unavailable
from controlplane.store import keys
from controlplane.store.kv import Store


class Still:
    """A cache in which nothing happens: what ledgers need of one."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._listeners: list[Listener] = []

    @property
    def revision(self) -> int:
        return self.snapshot.revision

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def reached(self, revision: int, timeout: float | None = None) -> None:
        if revision > self.revision:
            raise Unavailable(f"a picture of revision {self.revision} never reaches {revision}")

    def tell(self) -> None:
        """Everything, as a list tells it to a replica that starts: all at the list's own revision."""
        deltas = [
            Delta(entry.tree, entry.parts, None, entry, self.revision) for entry in self.snapshot.everything()
        ]  # fmt: skip
        for listener in tuple(self._listeners):
            listener(deltas, self.revision)


def ledgers_of(snapshot: Snapshot) -> Ledgers:
    still = Still(snapshot)
    ledgers = Ledgers(still)
    still.tell()
    return ledgers


async def snapshot_at(store: Store, revision: int) -> Snapshot:
    """Everything as it was at that revision; Compacted when etcd does not remember it any more."""
    trees: dict[str, Tree] = {tree: Map() for tree in keys.TREES}
    async for page in store.pages(revision=revision):
        for value in page.values:
            entry = entry_of(value)
            trees[entry.tree] = with_entry(trees.get(entry.tree, Map()), entry.parts, entry)
    return Snapshot(revision, trees)


async def ledgers_at(store: Store, revision: int) -> Ledgers:
    """Compacted as above. Built in a thread: a big world takes a while to read."""
    return await asyncio.to_thread(ledgers_of, await snapshot_at(store, revision))
