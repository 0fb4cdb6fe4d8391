"""The past: a snapshot at an earlier revision, listed from etcd's history, and ledgers of that snapshot.

Ledgers of a frozen cache equal ledgers that followed every change up to the revision. No watch changes them, so that
another thread may read them, which the ledgers of a running replica do not allow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from immutables import Map

from controlplane.aio.thread_team import QUESTIONS
from controlplane.cache.audience import Audience, ListenerStage
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Delta, Listener, enter
from controlplane.cache.snapshot import Branch, Snapshot
from controlplane.model.errors import Unavailable
from controlplane.store import keys
from controlplane.store.kv import Store
from controlplane.store.watch import Change, watch


class FrozenCache:
    """A cache that only changes when moved: the input of ledgers of the past."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._audience: Audience[Delta] = Audience()

    @property
    def revision(self) -> int:
        return self.snapshot.revision

    def subscribe(self, listener: Listener, *, stage: ListenerStage = ListenerStage.REACT) -> Callable[[], None]:
        return self._audience.add(listener, stage=stage)

    async def reached(self, revision: int, timeout: float | None = None) -> None:
        if revision > self.revision:
            raise Unavailable(f"a picture of revision {self.revision} never reaches {revision}")

    def tell(self) -> None:
        """All entries, as a list tells a replica that starts: all at the list's own revision."""
        self._tell([Delta(entry.tree, entry.parts, None, entry, self.revision) for entry in self.snapshot.everything()])

    def move(self, changes: Sequence[Change], revision: int) -> None:
        """Moves to a later revision by all changes up to there."""
        trees = dict(self.snapshot.trees)
        deltas = [enter(trees, change) for change in changes]
        self.snapshot = Snapshot(revision, trees)
        self._tell(deltas)

    def _tell(self, deltas: Sequence[Delta]) -> None:
        for listener, part in self._audience.concerned(deltas):
            listener(part, self.revision)


def ledgers_of(snapshot: Snapshot) -> Ledgers:
    return _ledgers_on(FrozenCache(snapshot))


def _ledgers_on(still: FrozenCache) -> Ledgers:
    ledgers = Ledgers(still)
    still.tell()
    return ledgers


async def snapshot_at(store: Store, revision: int) -> Snapshot:
    """All keys as they were at the revision; Compacted when etcd's history does not reach back so far."""
    trees: dict[str, Branch] = {tree: Map() for tree in keys.TREES}
    async for page in store.pages(revision=revision):
        for value in page.values:
            enter(trees, Change(value.key, revision, value))
    return Snapshot(revision, trees)


async def ledgers_at(store: Store, revision: int) -> Ledgers:
    """Compacted as above. Built in a thread: a big cluster takes a while to read."""
    return await QUESTIONS.run(ledgers_of, await snapshot_at(store, revision))


async def ledgers_through(store: Store, revisions: Sequence[int]) -> AsyncGenerator[Ledgers, None]:
    """The same ledgers at each revision in turn, oldest first: listed once, then moved by the changes.

    A later change must exist behind the last revision, as there is behind every revision on record.
    """
    left = deque(revisions)
    still = FrozenCache(await snapshot_at(store, left[0]))
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
