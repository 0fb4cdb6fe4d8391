"""A crowd of clients that behave as people do: they submit, repeat, cancel, pause, resume, move, through any replica.

What each order is and what becomes of it is a pure function of the seed and the order's number. Whoever is not answered
asks again, through another replica, until there is an answer. Half of the orders need a unique resource.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.model.errors import Conflict, LimitExceeded, OutcomeUnknown, Refused, Unavailable
from controlplane.wire.v1 import cluster_pb2, orders_pb2, resources_pb2
from tests import encryption
from tests.credentials import TOKEN
from tests.robustness.load import an_order, hang_up

RATE = 15.0
LICENCES = tuple(f"chaos-licence-{number}" for number in range(12))
_PATIENCE = CallTimeouts(attempt_seconds=1.0, total_seconds=3.0)
_AGAIN_SECONDS = 0.1
_LATE_SECONDS = 0.2
_MOST_OPEN = 80
_REAL = ("local-1", "far")
_SIMULATED = ("sim-0", "sim-1")
# An order's only job, which has no name of its own.
_JOB = "job-1"


@dataclass(frozen=True, slots=True)
class Deed:
    """What its client does to an order, so many seconds after its submit was answered; sent, when `hasty`.

    `index` is the task that is moved or cancelled alone; `to` the target that it is moved to, empty for any other.
    """

    after: float
    deed: str
    hasty: bool = False
    index: int = 0
    to: str = ""


@dataclass(frozen=True, slots=True)
class Errand:
    """One order, without its identity, and what its client does with it."""

    unique: str
    real: bool
    tasks: int
    command: tuple[str, ...]
    priority: int
    deadline: float
    deeds: tuple[Deed, ...]

    def order(self, identity: str) -> orders_pb2.Order:
        order = an_order(identity, command=self.command, unique=self.unique, real=self.real, priority=self.priority)
        order.packet.object.jobs[0].count = self.tasks
        if self.deadline:
            order.deadline = self.deadline
        return order


def errand(seed: int, number: int, *, wishes: bool = True) -> Errand:
    """Without `wishes` nobody wishes anything of single tasks, as it was once."""
    chance = random.Random(f"errand-{seed}-{number}")
    unique = chance.choice(LICENCES) if number % 2 else ""
    real = bool(unique) or chance.random() < 0.2
    commands = (("true",), ("sleep", "0.1"), ("sleep", "0.3"), ("sh", "-c", "sleep 0.1; exit 3"))
    weights = (5, 4, 2, 1)
    long = real and not unique and chance.random() < 0.3
    chosen = Errand(
        unique=unique,
        real=real,
        tasks=1 if real else chance.choice((1, 1, 1, 3, 8)),
        command=("sleep", "3") if long else chance.choices(commands, weights)[0],
        priority=chance.choice((30, 50, 50, 50, 80)),
        deadline=chance.uniform(5.0, 20.0) if chance.random() < 0.05 else 0.0,
        deeds=_deeds(chance),
    )
    if not wishes:
        return chosen
    # Another chance, so that everything else of the errand is as it was without these.
    deeds = (*chosen.deeds, *_wishes(random.Random(f"wishes-{seed}-{number}"), chosen))
    return replace(chosen, deeds=tuple(sorted(deeds, key=lambda deed: deed.after)))


def _deeds(chance: random.Random) -> tuple[Deed, ...]:
    deeds: list[Deed] = []
    if chance.random() < 0.25:
        deeds.append(Deed(chance.choice((0.0, 0.01, 0.05, 0.3, 1.5)), "cancel"))
    if chance.random() < 0.2:
        deeds += [Deed(chance.uniform(0.0, 5.0), "repeat", chance.random() < 0.5) for _ in range(chance.choice((1, 2)))]
    if chance.random() < 0.1:
        at = chance.uniform(0.0, 0.5)
        deeds += [Deed(at, "pause"), Deed(at + chance.uniform(0.5, 4.0), "resume")]
    return tuple(sorted(deeds, key=lambda deed: deed.after))


def _wishes(chance: random.Random, chosen: Errand) -> list[Deed]:
    """Of single tasks: real commands run long enough to be moved, and others have enough tasks to lose one."""
    deeds: list[Deed] = []
    if chance.random() < (0.3 if chosen.real else 0.1):
        to = chance.choice(("", "", *(_REAL if chosen.real else _SIMULATED)))
        deeds += [
            Deed(after, "move", index=chance.randrange(chosen.tasks), to=to)
            for after in chance.choice(((0.05,), (0.3,), (1.0,), (0.1, 0.6)))
        ]
    if chance.random() < (0.3 if chosen.tasks > 1 else 0.05):
        deeds.append(Deed(chance.choice((0.0, 0.05, 0.5)), "cancel task", index=chance.randrange(chosen.tasks)))
    return deeds


async def furnish(client: Client) -> None:
    """The unique resources that the crowd needs."""
    licences = [resources_pb2.Resource(name=name, key="LICENCE", value=name, unique=True) for name in LICENCES]
    objects = [cluster_pb2.Object(resource=licence) for licence in licences]
    await client.cluster.apply(cluster_pb2.ApplyRequest(objects=objects))


async def _resume(client: Client, order: str) -> orders_pb2.OrderResponse:
    return await client.orders.resume(order)


async def _wish(client: Client, order: str, deed: Deed) -> orders_pb2.OrderResponse:
    if deed.deed == "move":
        return await client.orders.move_task(
            orders_pb2.MoveTaskRequest(id=order, job=_JOB, index=deed.index, to=deed.to)
        )
    if deed.deed == "cancel task":
        return await client.orders.cancel_tasks(orders_pb2.TasksRequest(id=order, job=_JOB, index=deed.index))
    wish: Callable[[str], Awaitable[orders_pb2.OrderResponse]] = getattr(client.orders, deed.deed)
    return await wish(order)


class Crowd:
    """`finals` counts those of a set of orders that are final: with too many open ones the crowd waits, so that a slow
    machine gets no more than it can do."""

    def __init__(
        self, endpoints: Sequence[str], errands: Callable[[int], Errand], finals: Callable[[set[str]], int]
    ) -> None:
        turns = [tuple(endpoints[at:]) + tuple(endpoints[:at]) for at in range(len(endpoints))]
        self._clients = [Client(turn, token=TOKEN, ca_file=encryption.ca_file(), timeouts=_PATIENCE) for turn in turns]
        self._errand = errands
        self._finals = finals
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._offering = asyncio.create_task(self._offer())
        self.errands: dict[str, Errand] = {}
        self.acknowledged: set[str] = set()
        self.complaints: list[str] = []
        self._paused: list[str] = []

    async def _offer(self) -> None:
        due, number = self._loop.time(), 0
        while not self._stop.is_set():
            due = max(due + 1 / RATE, self._loop.time() - _LATE_SECONDS)
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            if len(self.errands) - self._finals(self.acknowledged) > _MOST_OPEN:
                continue
            self._begin(self._run(number))
            number += 1

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, number: int) -> None:
        chosen = self._errand(number)
        order = chosen.order(self._clients[0].mint.make())
        self.errands[order.id] = chosen
        for deed in chosen.deeds:
            if deed.hasty:
                self._begin(self._repeat(order, number, deed.after))
        await self._insist(number, lambda client: client.orders.submit(order))
        self.acknowledged.add(order.id)
        # One after the other: what a client says later must not be overtaken by what it said before.
        passed = 0.0
        for deed in chosen.deeds:
            if not deed.hasty:
                await asyncio.sleep(deed.after - passed)
                passed = deed.after
                await self._do(order, number, deed)

    async def _do(self, order: orders_pb2.Order, number: int, deed: Deed) -> None:
        if deed.deed == "repeat":
            await self._repeat(order, number)
            return
        if deed.deed == "pause":
            self._paused.append(order.id)
        # A final order takes no wishes, and says so.
        await self._insist(number, partial(_wish, order=order.id, deed=deed), refusable=True)

    async def _repeat(self, order: orders_pb2.Order, number: int, after: float = 0.0) -> None:
        await asyncio.sleep(after)
        answered = order.id in self.acknowledged
        answer = await self._insist(number + 1, lambda client: client.orders.submit(order))
        if answer is not None and (answer.item.id != order.id or (answered and not answer.repeated)):
            self.complaints.append(f"{order.id}: its repeat was another order")

    async def _insist(
        self, number: int, call: Callable[[Client], Awaitable[orders_pb2.OrderResponse]], *, refusable: bool = False
    ) -> orders_pb2.OrderResponse | None:
        """Until there is an answer; None for a refusal, which is a complaint where none is due."""
        tries = number
        while True:
            try:
                return await call(self._clients[tries % len(self._clients)])
            except (LimitExceeded, Unavailable, OutcomeUnknown, Conflict):
                await asyncio.sleep(_AGAIN_SECONDS)
            except Refused as refusal:
                if not refusable:
                    self.complaints.append(f"{type(refusal).__name__}: {refusal}")
                return None
            tries += 1

    async def leave(self, within: float) -> None:
        """Nothing new is offered; everything that was begun is answered within that time."""
        self._stop.set()
        await self._offering
        give_up = self._loop.time() + within
        while self._tasks:
            done, _ = await asyncio.wait(set(self._tasks), timeout=max(0.0, give_up - self._loop.time()))
            for task in done:
                task.result()
            assert done or not self._tasks, f"{len(self._tasks)} calls were not answered within {within:g} s"
        # A pause that was not answered in time may have come after its resume.
        for number, order in enumerate(self._paused):
            await self._insist(number, partial(_resume, order=order), refusable=True)

    async def close(self) -> None:
        await hang_up({self._offering, *self._tasks}, self._clients)


@asynccontextmanager
async def a_crowd(
    endpoints: Sequence[str], errands: Callable[[int], Errand], finals: Callable[[set[str]], int]
) -> AsyncIterator[Crowd]:
    """`errands` gives the errand of each number."""
    crowd = Crowd(endpoints, errands, finals)
    try:
        yield crowd
    finally:
        await crowd.close()
