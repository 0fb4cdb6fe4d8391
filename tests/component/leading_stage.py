"""A replica that leads on a real etcd: scheduler and controllers of one term, whose writes a test can hold back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from controlplane.aio.clock import SystemClock
from controlplane.aio.failpoint import Failpoints
from controlplane.controller_manager import controllers
from controlplane.model.fulfilment import Ended, Fulfilment
from controlplane.model.leadership import Cycle
from controlplane.model.order import Order
from controlplane.scheduler.cycle import Scheduler
from controlplane.store import keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, Outcome
from tests.builders import OrderBuilder, an_identity
from tests.component.leader_stage import Replica, Term, following, lead, running
from tests.etcd import Etcd

DESIRED = b"/controlplane/desired/"
BeforeCommit = Callable[[Sequence[Item]], Awaitable[None]]


def places(item: Item) -> bool:
    """Whether the item puts something below desired/."""
    return any(operation.key.startswith(DESIRED) and operation.value is not None for operation in item.then)


async def at_once(_items: Sequence[Item]) -> None:
    """Holds nothing back."""


class Stage(Replica):
    """A replica that leads. `before_commit` is called with each group of a leader's writes before it is sent."""

    term: Term
    work: asyncio.Future[None]
    before_commit: BeforeCommit = staticmethod(at_once)
    refused_placements: int = 0

    async def submit(self, builder: OrderBuilder) -> str:
        order: Order = builder.build()
        await self.write({keys.order(order.id): order})
        return order.id

    async def is_placed(self, order: str, count: int = 1) -> list[Fulfilment]:
        await self.until(lambda: len(self.placed(order)) == count)
        return self.placed(order)

    async def is_in(self, order: str, phase: str) -> None:
        await self.until(lambda: self.phase(order) == phase)

    def cycles(self) -> list[Cycle]:
        return sorted((entry.read() for entry in self.cache.snapshot.all(keys.CYCLES)), key=lambda cycle: cycle.n)

    def ended(self, order: str) -> list[Ended]:
        return [entry.read() for entry in self.cache.snapshot.all(keys.ENDED, order)]

    @property
    def epoch(self) -> int:
        return self.term.epoch

    async def commit(self, items: Sequence[Item]) -> Sequence[Outcome]:
        await self.before_commit(items)
        outcomes = await self.term.commit(items)
        answered = zip(items, outcomes, strict=True)
        self.refused_placements += sum(not outcome.succeeded and places(item) for item, outcome in answered)
        return outcomes

    async def run(self) -> None:
        self.term, _ = await lead(self)
        writer, clock = FencedWriter(self), SystemClock()
        scheduler = Scheduler(self.ledgers, writer, clock, make_identity=an_identity, failpoints=Failpoints())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(scheduler.run())
            tasks.create_task(controllers.run(self.ledgers, writer, clock))


@asynccontextmanager
async def leading(etcd: Etcd, before_commit: BeforeCommit = at_once) -> AsyncIterator[Stage]:
    async with following(etcd.endpoint, Stage) as stage:
        stage.before_commit = before_commit
        async with running(stage.run()) as (work,):
            stage.work = work
            await stage.until(lambda: bool(stage.cycles()))
            yield stage
