"""A leader without an election: a real candidate key in a real etcd, a cache that follows, ledgers, fenced writes.

The test plays the users and the joblets: it writes config and inventory as an apiserver would.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self, TypeVar

import msgspec

from controlplane.aio.clock import Clock, SystemClock
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Cache
from controlplane.model.errors import Deposed
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.leadership import Candidate
from controlplane.model.order import OrderStatus
from controlplane.store import codec, keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.fenced import FencedWriter
from controlplane.store.kv import Store
from controlplane.store.transaction import Fence, Item, Outcome, delete, delete_prefix, put
from tests.builders import FulfilmentBuilder, a_session, a_target

S = TypeVar("S", bound=msgspec.Struct)
R = TypeVar("R", bound="Replica")
PATIENCE_SECONDS = 30


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


class Replica:
    """A cache and ledgers that follow etcd."""

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self.store = store
        self.cache = Cache(store, clock or SystemClock())
        self.ledgers = Ledgers(self.cache)

    async def write(self, contents: dict[str, msgspec.Struct | bytes | None], *, lease: int = 0) -> int:
        """All in one transaction, and seen by this replica when it returns."""
        operations = tuple(
            delete(key)
            if content is None
            else put(key, content if isinstance(content, bytes) else codec.encode(content), lease=lease)
            for key, content in contents.items()
        )
        revision = (await self.store.commit(Item(then=operations))).revision
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

    def read(self, kind: type[S], tree: str, *parts: str) -> S | None:
        entry = self.cache.snapshot.get(tree, *parts)
        return entry.read(kind) if entry is not None else None

    def phase(self, order: str) -> str:
        status = self.read(OrderStatus, "status/orders", order)
        return status.phase if status is not None else "Pending"

    def placed(self, order: str) -> list[Fulfilment]:
        found = [entry.read(Fulfilment) for entry in self.cache.snapshot.all("desired")]
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
