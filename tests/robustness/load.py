"""Load: single submits at a steady rate through every replica in turn, each with an identity of its own.

An order whose submit was not answered, or not admitted for want of room, is submitted again with the same identity
through another replica, until it is answered. What was answered is on record with the moment of the answer. Most orders
run on simulated targets, some are real commands, some need a unique resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.model.errors import LimitExceeded, OutcomeUnknown, Unavailable
from controlplane.wire.v1 import common_pb2, jobs_pb2, orders_pb2, packets_pb2
from tests import encryption
from tests.credentials import TOKEN
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.world import UNIQUE

OFFERED = 70
LEAST = 50
_WARM_SECONDS = 2.5
_WINDOWS = 20
_LATE_SECONDS = 0.2
_PATIENCE = CallTimeouts(attempt_seconds=1.0, total_seconds=5.0)


@dataclass(slots=True)
class Ask:
    """One order: when it was first sent, when it was answered, and how often it was sent by this load."""

    order: orders_pb2.Order
    sent: float
    answered: float | None = None
    revision: int = 0
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    offered: float
    reached: float


Make = Callable[[str, int], orders_pb2.Order]


class Load:
    """`make` gives the order of an identity and a number; without it they are mixed."""

    def __init__(self, endpoints: Sequence[str], rate: float = OFFERED, make: Make | None = None) -> None:
        turns = [tuple(endpoints[at:]) + tuple(endpoints[:at]) for at in range(len(endpoints))]
        self._clients = [Client(turn, token=TOKEN, ca_file=encryption.ca_file(), timeouts=_PATIENCE) for turn in turns]
        self._rate = rate
        self._make = make or a_mixed_order
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._stop = asyncio.Event()
        self._offers = asyncio.Event()
        self._offers.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._offering = asyncio.create_task(self._offer())
        self.asks: dict[str, Ask] = {}

    async def _offer(self) -> None:
        due, number = self._began, 0
        while not self._stop.is_set():
            await self._offers.wait()
            # What a busy machine made late is not made up for by a flood.
            due = max(due + 1 / self._rate, self._loop.time() - _LATE_SECONDS)
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            if not self._offers.is_set():
                continue
            task = asyncio.create_task(self._submit(number))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            number += 1

    async def _submit(self, number: int) -> None:
        client = self._clients[number % len(self._clients)]
        order = self._make(client.mint.make(), number)
        ask = self.asks[order.id] = Ask(order, self._loop.time())
        while ask.answered is None:
            client = self._clients[(number + ask.tries) % len(self._clients)]
            ask.tries += 1
            try:
                ask.revision = (await client.orders.submit(order)).revision
            except (LimitExceeded, Unavailable, OutcomeUnknown):
                await asyncio.sleep(0.1)
            else:
                ask.answered = self._loop.time()

    def pause(self) -> None:
        self._offers.clear()

    def resume(self) -> None:
        self._offers.set()

    async def warm(self, seconds: float = _WARM_SECONDS) -> Rates:
        """Returns after that time at no less than the least rate, with the rates of it: the fault may come now.

        A rate that is not reached in the first moments, or not at all times on a busy machine, may still come; a test
        without it has failed.
        """
        await asyncio.sleep(max(0.0, self._began + 1.0 - self._loop.time()))
        for _ in range(_WINDOWS):
            since = self._loop.time()
            await asyncio.sleep(seconds)
            rates = self.rates(since, self._loop.time())
            if rates.reached >= LEAST:
                return rates
        raise AssertionError(f"offered {rates.offered:.1f}/s, reached only {rates.reached:.1f} orders/s")

    def rates(self, since: float, until: float) -> Rates:
        asks = self.asks.values()
        offered = sum(since <= ask.sent < until for ask in asks)
        reached = sum(ask.answered is not None and since <= ask.answered < until for ask in asks)
        return Rates(offered / (until - since), reached / (until - since))

    @property
    def acknowledged(self) -> set[str]:
        return {name for name, ask in self.asks.items() if ask.answered is not None}

    async def answered(self) -> None:
        """Every order that was offered so far must be answered."""
        tasks = set(self._tasks)
        if tasks:
            done, left = await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)
            for task in done:
                task.result()
            assert not left, f"{len(left)} submits were never answered"

    async def finish(self) -> None:
        """Stops offering; every order that was ever offered must be answered."""
        self._stop.set()
        self._offers.set()
        await self._offering
        await self.answered()

    async def close(self) -> None:
        await hang_up({self._offering, *self._tasks}, self._clients)


async def hang_up(calls: set[asyncio.Task[None]], clients: Sequence[Client]) -> None:
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    for client in clients:
        await client.close()


@asynccontextmanager
async def load(endpoints: Sequence[str], rate: float = OFFERED, make: Make | None = None) -> AsyncIterator[Load]:
    running = Load(endpoints, rate, make)
    try:
        yield running
    finally:
        await running.close()


def an_order(
    identity: str,
    *,
    command: Sequence[str] = ("true",),
    unique: str = "",
    real: bool = False,
    target: str = "",
    priority: int | None = None,
    prefer: str = "",
) -> orders_pb2.Order:
    """One task; on a target of real commands or on a simulated one, told apart by a quantity that only they have."""
    room = {"cpu": 1.0, "real" if real else "sim": 1.0}
    job = jobs_pb2.Job(command=command, requests=common_pb2.Quantities(of=room), resources=[unique] if unique else [])
    if prefer:
        job.prefer.add().targets.append(prefer)
    packet = packets_pb2.Packet(jobs=[packets_pb2.PacketJob(job=packets_pb2.JobRef(object=job), count=1)])
    order = orders_pb2.Order(id=identity, packet=orders_pb2.PacketRef(object=packet), priority=priority)
    if target:
        order.target_policy = f"strict:{target}"
    return order


def a_mixed_order(identity: str, number: int) -> orders_pb2.Order:
    """Of twenty three need a unique resource, three are real commands, and one of them is both."""
    kind = number % 20
    return an_order(
        identity,
        command=("sleep", "0.2") if kind == 19 else ("true",),
        unique=UNIQUE[number % len(UNIQUE)] if kind in (4, 9, 14) else "",
        real=kind in (0, 9, 19),
    )
