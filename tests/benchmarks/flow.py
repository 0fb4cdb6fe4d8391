"""flow: the most orders a second that three replicas take and finish on simulated targets, and what overload does.

A rate counts as sustained when it was offered, taken and finished at 95 % of itself, so that nothing piles up. The
search climbs in short windows until one is not sustained, and confirms the highest in a long one. Beside the rate
stands how full each process was. Then three times that rate is offered for a minute: how much is finished meanwhile
tells whether overload costs throughput.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc

from controlplane.aio.clock import SystemClock
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import OrderStatus
from controlplane.store import codec, keys, transaction
from controlplane.store.kv import Store
from controlplane.store.watch import watch
from controlplane.wire.v1 import cluster_pb2, cluster_pb2_grpc, orders_pb2, orders_pb2_grpc
from tests.benchmarks.busy import Meter
from tests.benchmarks.offering import order
from tests.benchmarks.rows import Row
from tests.benchmarks.stage import Stage, stage

_OVERLOAD_SECONDS = float(os.environ.get("BENCH_FLOW_SECONDS", "60"))
_CONFIRM_SECONDS = min(30.0, _OVERLOAD_SECONDS)
_CLIMB_SECONDS = 6.0
# The first moments of a window belong to the one before.
_LEAD_SECONDS = 2.0
_FIRST_RATE, _CLIMB, _BACK, _MOST_RATE = 400.0, 1.25, 0.92, 20_000.0
_CONFIRMS = 6
_SUSTAINED = 0.95
_OVERLOAD = 3
_STEP_SECONDS = 0.05
_PATIENCE_SECONDS = 60.0
_BARE_PUTS = 20_000
_COUNTERS = ("etcd_mvcc_put_total", "etcd_mvcc_delete_total")


@dataclass
class Counted:
    """What was taken and what ended, as a watcher of the orders' status saw it."""

    offered: int = 0
    taken: int = 0
    finished: set[str] = field(default_factory=set)
    succeeded: int = 0

    def now(self) -> tuple[int, int, int, float]:
        return self.offered, self.taken, len(self.finished), time.perf_counter()


@dataclass(frozen=True)
class Window:
    """Rates a second while this much was asked for, and how full each process was."""

    rate: float
    offered: float
    taken: float
    finished: float
    busy: Mapping[str, float]

    @property
    def sustained(self) -> bool:
        return min(self.offered, self.taken, self.finished) >= _SUSTAINED * self.rate


class Flow:
    def __init__(self, here: Stage, joblet: int) -> None:
        self._here = here
        self._joblet = joblet
        self._channels = [here.channel(endpoint) for endpoint in here.endpoints()]
        self._calls: set[asyncio.Task[None]] = set()
        self._turn = 0
        self.store = Store(here.etcd_options(), SystemClock())
        self.counted = Counted()

    async def count(self, from_revision: int) -> None:
        async for batch in watch(self.store.channels, keys.order_status(""), from_revision):
            for change in batch.changes:
                if change.value is None:
                    continue
                phase = codec.decode(change.value.value, OrderStatus).phase
                if phase in FINAL_ORDER and change.key not in self.counted.finished:
                    self.counted.finished.add(change.key)
                    self.counted.succeeded += phase == "Succeeded"

    async def window(self, rate: float, seconds: float) -> Window:
        """Offers at that rate, and returns when all that was taken has ended. The first moments are not counted."""
        meter, before = Meter(await self._processes()), self.counted.now()
        began, sent, measuring = time.perf_counter(), 0, False
        while (elapsed := time.perf_counter() - began) < _LEAD_SECONDS + seconds:
            if not measuring and elapsed >= _LEAD_SECONDS:
                meter, before, measuring = Meter(await self._processes()), self.counted.now(), True
            due = int(elapsed * rate) - sent
            if due > 0:
                self._send(due)
                sent += due
            await asyncio.sleep(_STEP_SECONDS)
        busy, after = meter.percent(), self.counted.now()
        took = after[3] - before[3]
        offered, taken, finished = ((now - then) / took for now, then in zip(after[:3], before[:3], strict=True))
        seen = Window(rate, offered, taken, finished, busy)
        sys.stderr.write(
            f"  offered {seen.offered:,.0f}/s, taken {seen.taken:,.0f}/s, finished {seen.finished:,.0f}/s\n"
        )
        await self._drained()
        return seen

    def _send(self, count: int) -> None:
        """In small batches, to each replica in turn."""
        self.counted.offered += count
        self._turn = (self._turn + 1) % len(self._channels)
        task = asyncio.create_task(self._submit(count, self._channels[self._turn]))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _submit(self, count: int, channel: grpc.aio.Channel) -> None:
        request = orders_pb2.SubmitBatchRequest(orders=[order() for _ in range(count)])
        try:
            answer = await orders_pb2_grpc.OrdersStub(channel).SubmitBatch(request)
        except grpc.aio.AioRpcError as error:
            # A replica under pressure takes none of them.
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
        else:
            self.counted.taken += sum(not result.HasField("failure") for result in answer.results)

    async def _drained(self) -> None:
        """All that was taken has ended, or nothing ends any more."""
        await asyncio.gather(*self._calls)
        finished, since = -1, time.perf_counter()
        while len(self.counted.finished) < self.counted.taken:
            if len(self.counted.finished) > finished:
                finished, since = len(self.counted.finished), time.perf_counter()
            elif time.perf_counter() - since > _PATIENCE_SECONDS:
                return
            await asyncio.sleep(0.1)

    async def _processes(self) -> dict[str, int]:
        leader = (await cluster_pb2_grpc.ClusterStub(self._channels[0]).GetLeader(cluster_pb2.LeaderRequest())).id
        up = self._here.up_json()
        replicas = {
            ("leader" if replica["id"] == leader else f"standby {replica['id']}"): int(replica["pid"])
            for replica in up["replicas"]
        }
        return {**replicas, "etcd": int(up["etcd_pids"][0]), "joblet": self._joblet, "load": os.getpid()}

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()
        await self.store.close()


async def limit(flow: Flow) -> Window:
    """The highest rate that is sustained; of a machine on which none is, the last that was tried."""
    rate = _FIRST_RATE
    while rate < _MOST_RATE and (await flow.window(rate, _CLIMB_SECONDS)).sustained:
        rate *= _CLIMB
    rate /= _CLIMB
    for _ in range(_CONFIRMS):
        seen = await flow.window(rate, _CONFIRM_SECONDS)
        if seen.sustained:
            break
        rate *= _BACK
    return seen


def writes_of(here: Stage) -> float:
    """Keys put and deleted since etcd started, as etcd itself counts them."""
    with urllib.request.urlopen(f"{here.etcd()}/metrics", timeout=10, context=here.etcd_context()) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.split()[0] in _COUNTERS)


async def _bare(store: Store) -> float:
    """Puts a second of a bare writer with one watcher, hundred a transaction, four under way."""
    at_once = asyncio.Semaphore(4)
    value = b"x" * 300

    async def write(number: int) -> None:
        async with at_once:
            item = transaction.Item(
                then=tuple(transaction.put(f"/bare/{number}/{position}", value) for position in range(100))
            )
            await store.commit(item)

    started = time.perf_counter()
    await asyncio.gather(*(write(number) for number in range(_BARE_PUTS // 100)))
    return _BARE_PUTS / (time.perf_counter() - started)


async def _measure(here: Stage, joblet: int) -> tuple[float, Counted, Window, Window]:
    """(puts a second of a bare writer, what was counted, the window of the limit, that of three times the limit)"""
    flow = Flow(here, joblet)
    bare = await _bare(flow.store)
    counting = asyncio.create_task(flow.count(await flow.store.revision() + 1))
    most = await limit(flow)
    over = await flow.window(_OVERLOAD * most.finished, _OVERLOAD_SECONDS)
    counting.cancel()
    await flow.close()
    return bare, flow.counted, most, over


def run() -> list[Row]:
    with stage(targets=0) as here, here.simulated(count=10, capacity="cpu=200", duration="50ms") as joblet:
        before = writes_of(here)
        bare, counted, most, over = asyncio.run(_measure(here, joblet))
        writes = (writes_of(here) - before - _BARE_PUTS) / max(counted.taken, 1)
    rate, bare_rate = most.finished, bare / max(writes, 1)
    lost = counted.taken - counted.succeeded
    kept = over.finished / max(rate, 1)
    return [
        Row("flow", "submitted -> finished", rate, "orders/s", bare_rate, rate / bare_rate, ">= 500/s", rate >= 500),
        *(Row("flow", f"at the limit: {name}", percent, "% of a core") for name, percent in most.busy.items()),
        Row("flow", f"finished at {_OVERLOAD} x that", over.finished, "orders/s", rate, kept, ">= 0.8", kept >= 0.8),
        Row("flow", f"taken at {_OVERLOAD} x that", over.taken, "orders/s"),
        Row("flow", "etcd writes an order", writes, "keys"),
        Row("flow", "not finished or failed", lost, "orders", goal="0", met=lost == 0),
    ]
