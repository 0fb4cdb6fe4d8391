"""A leader without an election: a real candidate key in a real etcd, a cache that follows, ledgers, fenced writes.

The test plays the users and the joblets: it writes config and inventory as an apiserver would.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import msgspec

from controlplane.aio.clock import Clock, SystemClock
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Cache
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.model.errors import Deposed
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.leadership import Candidate
from controlplane.store import codec, keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.fenced import FencedWriter
from controlplane.store.keys import Tree
from controlplane.store.kv import Store
from controlplane.store.transaction import Fence, Item, Outcome, delete, put
from tests.builders import FulfilmentBuilder, a_session, a_target
from tests.prefixes import delete_prefix

S = TypeVar("S", bound=msgspec.Struct)
R = TypeVar("R", bound="Replica")
PATIENCE_SECONDS = 30
# By key; None is deleted.
Contents = Mapping[str, msgspec.Struct | bytes | None]


def item_of(contents: Contents, *, lease: int = 0) -> Item:
    """One transaction that writes all of them."""
    return Item(
        then=tuple(
            delete(key)
            if content is None
            else put(key, content if isinstance(content, bytes) else codec.encode(content), lease=lease)
            for key, content in contents.items()
        )
    )


@dataclass
class Term:
    """One term, held by a candidate key: what the election gives to the components, without the election."""

    store: Store
    fence: Fence
    lease: int

    @classmethod
    async def begin(cls, store: Store) -> Self:
        lease = await store.grant(600)
        key = keys.candidate(lease)
        candidate = Candidate(id="test", incarnation="i", grpc="", http="", pulse="", pid=1, version="0")
        made = await store.commit(Item(then=(put(key, codec.encode(candidate), lease=lease),)))
        return cls(store, Fence(key, made.revision, made.revision), lease)

    @property
    def epoch(self) -> int:
        return self.fence.epoch

    async def commit(self, items: Sequence[Item]) -> Sequence[Outcome]:
        return await self.store.commit_group(items, fence=self.fence, timeout=PATIENCE_SECONDS)

    async def end(self) -> None:
        await self.store.revoke(self.lease)


class Mortal:
    """A term whose leader dies when it has made so many writes."""

    def __init__(self, term: Term, writes: int) -> None:
        self._term = term
        self._left = writes

    @property
    def epoch(self) -> int:
        return self._term.epoch

    async def commit(self, items: Sequence[Item]) -> Sequence[Outcome]:
        allowed = items[: self._left]
        self._left -= len(allowed)
        outcomes = await self._term.commit(allowed) if allowed else ()
        if len(allowed) < len(items):
            raise Deposed("died")
        return outcomes


class Replica:
    """A cache and ledgers that follow etcd."""

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self.store = store
        self.cache = Cache(store, clock or SystemClock())
        self.ledgers = Ledgers(self.cache)

    async def write(self, contents: Contents, *, lease: int = 0) -> int:
        """All in one transaction, and seen by this replica when it returns."""
        revision = (await self.store.commit(item_of(contents, lease=lease))).revision
        await self.cache.reached(revision, PATIENCE_SECONDS)
        return revision

    async def until(self, holds: Callable[[], bool]) -> None:
        """Returns when the ledgers have made it true; looked at after every change."""
        moved = asyncio.Event()
        unsubscribe = self.ledgers.subscribe(lambda _touched: moved.set())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not holds():
                    await moved.wait()
                    moved.clear()
        finally:
            unsubscribe()

    def settling(self, writer: FencedWriter) -> ControllerWriter:
        """What the controllers of that term write with."""
        return ControllerWriter(writer, self.cache)

    def read(self, tree: Tree[S], *parts: str) -> S | None:
        entry = self.cache.snapshot.get(tree, *parts)
        return entry.read() if entry is not None else None

    def contents(self, trees: Sequence[Tree[Any]], *, without: Sequence[str]) -> dict[str, Any]:
        """All that is stored in the trees by its key, less the named fields of it and of all inside of it."""
        return {
            entry.stored.key: _less(msgspec.json.decode(entry.stored.value), without)
            for tree in trees
            for entry in self.cache.snapshot.all(tree)
        }

    def phase(self, order: str) -> str:
        status = self.read(keys.ORDER_STATUS, order)
        return status.phase if status is not None else "Pending"

    def placed(self, order: str) -> list[Fulfilment]:
        found = [entry.read() for entry in self.cache.snapshot.all(keys.DESIRED)]
        return [fulfilment for fulfilment in found if fulfilment.order == order]

    async def join(self, target: str, *, slots: int | None = None, **capacity: float) -> None:
        """A target with a joblet."""
        await self.write(
            {
                keys.config("targets", target): a_target(target, slots=slots, **capacity),
                keys.live(target): a_session(target, **capacity),
            }
        )

    async def report(self, fulfilment: Fulfilment, phase: str, *, reason: str = "") -> None:
        """As the apiserver does for a joblet."""
        builder = FulfilmentBuilder(fulfilment.order, fulfilment.target, fulfilment.id, fulfilment.tasks)
        await self.write({keys.observed(fulfilment.target, fulfilment.id): builder.observed(phase, reason=reason)})

    async def wipe(self) -> None:
        """Back to nothing, for the next round of a test."""
        revision = (await self.store.commit(Item(then=(delete_prefix(keys.ROOT),)))).revision
        await self.cache.reached(revision, PATIENCE_SECONDS)


def _less(value: Any, without: Sequence[str]) -> Any:
    if isinstance(value, dict):
        return {name: _less(inner, without) for name, inner in value.items() if name not in without}
    return [_less(inner, without) for inner in value] if isinstance(value, list) else value


@asynccontextmanager
async def following(endpoint: str, kind: type[R], clock: Clock | None = None) -> AsyncIterator[R]:
    """A replica that has listed etcd and follows it."""
    store = Store(EtcdOptions(tuple(endpoint.split(",")), timeout_seconds=10), SystemClock())
    replica = kind(store, clock)
    async with running(replica.cache.run()):
        await replica.cache.reached(1, PATIENCE_SECONDS)
        yield replica
    await store.close()


@asynccontextmanager
async def running(*work: Awaitable[None]) -> AsyncIterator[Sequence[asyncio.Future[None]]]:
    """Runs them beside the test. Ending by being deposed is no error; any other error of theirs is the test's."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, BaseExceptionGroup):
                ended = ended.split(Deposed)[1]
            if ended is not None and not isinstance(ended, asyncio.CancelledError | Deposed):
                raise ended


async def lead(replica: Replica) -> tuple[Term, FencedWriter]:
    term = await Term.begin(replica.store)
    await replica.cache.reached(term.epoch, PATIENCE_SECONDS)
    return term, FencedWriter(term)
