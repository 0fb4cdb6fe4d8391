"""A steady load of small orders: an order every 1/rate seconds, however long earlier orders take.

Each order carries its identity from the start and is repeated until a replica acknowledges the order. Acknowledged
identities go into a file at once, so that the record outlives the client.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from controlplane.aio.clock import Clock
from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.model.errors import OutcomeUnknown, Unavailable
from controlplane.model.job import Job
from controlplane.model.order import OrderRequest
from controlplane.model.packet import Packet, PacketJob
from controlplane.standalone.endpoints import EndpointSource
from controlplane.wire import convert
from controlplane.wire.v1 import orders_pb2

# Takes little of the targets' capacity: the load is on the control plane.
_JOB = Job(command=("true",), requests={"cpu": 0.1}, drivers=("process",))
_TIMEOUTS = CallTimeouts(connect_seconds=1.0, attempt_seconds=3.0, total_seconds=10.0)
# With this many seconds of orders unanswered no more are sent; the reached rate then shows the lag.
_BEHIND_SECONDS = 10.0
_GIVE_UP_SECONDS = 60.0
ENOUGH = 0.9


class Offer:
    """There is a client per replica, each starting at another replica."""

    def __init__(self, where: EndpointSource, rate: float, record: Path, clock: Clock) -> None:
        source = where.current
        self.rate = rate
        self._record = record
        self._clock = clock
        self._clients = [
            Client(_rotated(source, by), token=where.token, ca_file=where.ca_file(), timeouts=_TIMEOUTS)
            for by in range(max(1, len(source())))
        ]
        self._lately: deque[float] = deque()
        self._began = 0.0
        self._stopped: tuple[float, int] | None = None
        self._on_the_way = 0
        self._stop = asyncio.Event()
        self.reached = asyncio.Event()
        self.acknowledged: list[str] = []

    async def run(self) -> None:
        """Offers orders until `stop`, then waits for unanswered orders; Unavailable when no replica takes an order."""
        self._began = self._clock.monotonic()
        number = 0
        try:
            with self._record.open("w", encoding="ascii") as record:
                async with asyncio.TaskGroup() as sending:
                    while not self._stop.is_set():
                        if self._on_the_way < self.rate * _BEHIND_SECONDS:
                            sending.create_task(self._submit(self._clients[number % len(self._clients)], record))
                        number += 1
                        due = self._began + number / self.rate
                        await self._clock.sleep(max(0.0, due - self._clock.monotonic()))
        finally:
            for client in self._clients:
                await client.close()

    def stop(self) -> None:
        self._stopped = self._clock.monotonic(), len(self.acknowledged)
        self._stop.set()

    @property
    def reached_rate(self) -> float:
        """Acknowledged orders per second while orders were offered."""
        until, count = self._stopped or (self._clock.monotonic(), len(self.acknowledged))
        return count / max(until - self._began, 1e-9)

    async def _submit(self, client: Client, record: TextIO) -> None:
        name = self._clients[0].mint.make()
        order = OrderRequest(id=name, packet=Packet(jobs=(PacketJob(job=_JOB, count=1),)), owner="drill")
        message = convert.to_wire(order, orders_pb2.Order)
        give_up = self._clock.monotonic() + _GIVE_UP_SECONDS
        self._on_the_way += 1
        while True:
            try:
                await client.orders.submit(message)
                break
            except (Unavailable, OutcomeUnknown):
                if self._clock.monotonic() > give_up:
                    raise
        record.write(json.dumps({"id": name}) + "\n")
        record.flush()
        self._acknowledge(name)

    def _acknowledge(self, name: str) -> None:
        now = self._clock.monotonic()
        self._on_the_way -= 1
        self.acknowledged.append(name)
        self._lately.append(now)
        while self._lately[0] < now - 1.0:
            self._lately.popleft()
        if len(self._lately) >= ENOUGH * self.rate and now - self._began >= 1.0:
            self.reached.set()


def _rotated(source: Callable[[], Sequence[str]], by: int) -> Callable[[], Sequence[str]]:
    def rotated() -> Sequence[str]:
        endpoints = source()
        at = by % max(1, len(endpoints))
        return [*endpoints[at:], *endpoints[:at]]

    return rotated
