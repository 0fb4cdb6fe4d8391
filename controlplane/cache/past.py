"""The world as it was: a snapshot at a past revision, listed from etcd's history, and ledgers that stand still.

Still ledgers equal those that followed every change up to the revision. Nothing moves them but who holds them, so they
may be read in another thread, where the ledgers of a running replica may not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from immutables import Map

from controlplane.aio.thread_team import QUESTIONS
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Delta, Listener, enter
from controlplane.cache.snapshot import Snapshot, Tree, entry_of, with_entry
from controlplane.model.errors import Unavailable
from controlplane.store import keys
from controlplane.store.kv import Store
from controlplane.store.watch import Change, watch


class Still:
    """A cache in which nothing happens by itself: what ledgers need of one."""

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
        self._tell([Delta(entry.tree, entry.parts, None, entry, self.revision) for entry in self.snapshot.everything()])

    def move(self, changes: Sequence[Change], revision: int) -> None:
        """On to a later revision, by all that changed until then."""
        trees = dict(self.snapshot.trees)
        deltas = [enter(trees, change) for change in changes]
        self.snapshot = Snapshot(revision, trees)
        self._tell(deltas)

    def _tell(self, deltas: Sequence[Delta]) -> None:
        for listener in tuple(self._listeners):
            listener(deltas, self.revision)


def ledgers_of(snapshot: Snapshot) -> Ledgers:
    return _ledgers_on(Still(snapshot))


def _ledgers_on(still: Still) -> Ledgers:
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
    return await QUESTIONS.run(ledgers_of, await snapshot_at(store, revision))


async def ledgers_through(store: Store, revisions: Sequence[int]) -> AsyncGenerator[Ledgers, None]:
    """The same ledgers at one revision after the other, oldest first: listed once, then moved by what changed.

    Behind the last of them there must be a later change, as there is behind what a record speaks of.
    """
    left = deque(revisions)
    still = Still(await snapshot_at(store, left[0]))
    ledgers = await QUESTIONS.run(_ledgers_on, still)
    coming: list[Change] = []
    async with aclosing(watch(store.channels, keys.ROOT, left[0] + 1)) as batches:
        async for batch in batches:
            for change in batch.changes:
                while left and left[0] < change.revision:
                    still.move(coming, left.popleft())
                    coming.clear()
                    yield ledgers
                coming.append(change)
            if not left:
                return
