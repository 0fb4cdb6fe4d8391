"""A flood: batches of orders at a steady rate through every replica in turn, more than can be finished.

An order that was refused for want of room is not offered again; a batch that was not answered is sent again, with the
same identities, through another replica. What was taken is on record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.model.errors import LimitExceeded, OutcomeUnknown, Unavailable
from controlplane.wire.v1 import orders_pb2
from tests import encryption
from tests.credentials import TOKEN
from tests.robustness.load import Rates, an_order
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.world import UNIQUE, World

_PATIENCE = CallTimeouts(attempt_seconds=10.0, total_seconds=PATIENCE_SECONDS)
_STEP_SECONDS = 0.05
# One of so many orders needs a unique resource, of which few are done at a time.
_UNIQUE_ONE_OF = 200
_LOOK_SECONDS = 0.25


class Flood:
    def __init__(self, endpoints: Sequence[str]) -> None:
        turns = [tuple(endpoints[at:]) + tuple(endpoints[:at]) for at in range(len(endpoints))]
        self._clients = [Client(turn, token=TOKEN, ca_file=encryption.ca_file(), timeouts=_PATIENCE) for turn in turns]
        self._tasks: set[asyncio.Task[None]] = set()
        self._offering: asyncio.Task[None] | None = None
        self._turn = 0
        self.offered = 0
        self.refused = 0
        self.acknowledged: set[str] = set()

    def begin(self, rate: float) -> None:
        """From now on so many orders a second are offered."""
        if self._offering is not None:
            self._offering.cancel()
        self._offering = asyncio.create_task(self._offer(rate))

    async def _offer(self, rate: float) -> None:
        loop = asyncio.get_running_loop()
        began, sent = loop.time(), 0
        while True:
            due = int((loop.time() - began) * rate) - sent
            if due > 0:
                sent += due
                orders = [self._order() for _ in range(due)]
                self._turn += 1
                task = asyncio.create_task(self._submit(orders, self._turn))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(_STEP_SECONDS)

    def _order(self) -> orders_pb2.Order:
        self.offered += 1
        unique = UNIQUE[self.offered % len(UNIQUE)] if self.offered % _UNIQUE_ONE_OF == 0 else ""
        return an_order(self._clients[0].mint.make(), unique=unique)

    async def _submit(self, orders: Sequence[orders_pb2.Order], turn: int) -> None:
        request = orders_pb2.SubmitBatchRequest(orders=orders)
        while True:
            turn += 1
            try:
                answer = await self._clients[turn % len(self._clients)].orders.submit_batch(request)
            except LimitExceeded:
                self.refused += len(orders)
                return
            except (Unavailable, OutcomeUnknown):
                await asyncio.sleep(0.1)
                continue
            taken = {result.id for result in answer.results if not result.HasField("failure")}
            self.acknowledged |= taken
            self.refused += len(orders) - len(taken)
            return

    async def finish(self) -> None:
        """Stops offering; every batch that was ever offered must be answered."""
        if self._offering is not None:
            self._offering.cancel()
            await asyncio.wait({self._offering})
        if self._tasks:
            done, left = await asyncio.wait(set(self._tasks), timeout=2 * PATIENCE_SECONDS)
            for task in done:
                task.result()
            assert not left, f"{len(left)} batches were never answered"

    async def close(self) -> None:
        tasks = {task for task in (self._offering, *self._tasks) if task is not None}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def a_flood(world: World) -> AsyncIterator[Flood]:
    flood = Flood(world.endpoints)
    try:
        yield flood
    finally:
        await flood.close()


async def finished(world: World, flood: Flood) -> None:
    """However long it takes, as long as one order after the other becomes final."""
    loop = asyncio.get_running_loop()
    left, since = len(flood.acknowledged) + 1, loop.time()
    while left:
        open_now = len(flood.acknowledged) - world.witness.finals(flood.acknowledged)
        if open_now < left:
            left, since = open_now, loop.time()
        assert loop.time() - since < PATIENCE_SECONDS, f"{left} orders of {len(flood.acknowledged)} do not become final"
        await asyncio.sleep(_LOOK_SECONDS)


class Pace:
    """How many orders were offered, taken and finished a second, since it was made."""

    def __init__(self, world: World, flood: Flood) -> None:
        self._world = world
        self._flood = flood
        self._began = self._now()

    def _now(self) -> tuple[int, int, int, float]:
        flood, loop = self._flood, asyncio.get_running_loop()
        return flood.offered, len(flood.acknowledged), self._world.witness.finals(flood.acknowledged), loop.time()

    def rates(self) -> tuple[Rates, float]:
        """(offered and taken, finished)"""
        offered, taken, ended, moment = (now - then for now, then in zip(self._now(), self._began, strict=True))
        return Rates(offered / moment, taken / moment), ended / moment
