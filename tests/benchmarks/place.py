"""place: placements committed a second, and memory a pending task, with simulated joblets.

The joblets are stopped once their targets are Ready, so that nothing but placing is measured; the bare writer puts as
many keys of the same size with as many decoding watchers as there are replicas.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import grpc

from controlplane.aio.clock import SystemClock
from controlplane.model.settings import DEFAULT
from controlplane.store import keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, put
from controlplane.wire.v1 import (
    cluster_pb2,
    cluster_pb2_grpc,
    common_pb2,
    cycles_pb2_grpc,
    orders_pb2,
    orders_pb2_grpc,
    targets_pb2_grpc,
)
from tests.benchmarks.offering import order
from tests.benchmarks.rows import Row, quantile
from tests.benchmarks.stage import Stage, stage
from tests.credentials import token_channel

_TASKS = int(os.environ.get("BENCH_PLACE_TASKS", "40000"))
_IN_ORDER = 200
_TARGETS = 20
_SINGLE = 10_000
_READY_SECONDS = 30.0
_PATIENCE_SECONDS = 60.0
_PUTS = 25
_GROUPS = 5_000
_GET_SECONDS = 5.0
_UNDER_WAY = 4
_BINDS_OF_KUBE_SCHEDULER = 614


@dataclass(frozen=True)
class Measured:
    rate: float
    bare: float
    bytes_a_task: float
    bytes_a_single: float


def run() -> list[Row]:
    one, three = _measured(1), _measured(3)
    goal = max(12_000, 20 * _BINDS_OF_KUBE_SCHEDULER)
    ratio = three.rate / three.bare
    size = one.bytes_a_task
    return [
        Row("place", "committed, one replica", one.rate, "placements/s", one.bare, one.rate / one.bare,
            f">= {goal:,}/s", one.rate >= goal),
        Row("place", "committed, three replicas", three.rate, "placements/s", three.bare, ratio, ">= half of bare",
            ratio >= 0.5),
        Row("place", f"memory a pending task, orders of {_IN_ORDER}", size, "bytes", goal="< 1,500", met=size < 1500),
        Row("place", "memory a pending single-task order", one.bytes_a_single, "bytes"),
        _responsive(),
    ]  # fmt: skip


def _responsive() -> Row:
    """Every cycle goes through 1,000,000 waiting tasks in 5,000 groups, as none of them fits."""
    with ExitStack() as stack:
        here = stack.enter_context(stage(replicas=1, targets=0))
        asyncio.run(_patient(here))
        stack.enter_context(here.simulated(count=_TARGETS, capacity="cpu=10", duration="1h"))
        asyncio.run(_ready(here))
        stack.enter_context(_stopped())
        quiet, busy, cycles = asyncio.run(_gets(here))
    metric = f"p99 of a get during {cycles} cycles over 1,000,000 tasks"
    return Row("place", metric, busy * 1e3, "ms", quiet * 1e3, busy / quiet, "< 100 ms", busy < 0.1)


async def _gets(here: Stage) -> tuple[float, float, int]:
    """p99 of a get when nothing waits and when much does, and how many cycles that was."""
    async with token_channel(here.endpoints()[0]) as channel:
        first = order()
        await _submit(channel, [first])
        quiet = await _slowest(channel, first.id)
        await _submit(channel, [_unlike(at) for at in range(_GROUPS)])
        before = await _cycles(channel)
        stop = asyncio.Event()
        waking = asyncio.create_task(_wake(channel, stop))
        busy = await _slowest(channel, first.id)
        stop.set()
        await waking
        return quiet, busy, await _cycles(channel) - before


def _unlike(at: int) -> orders_pb2.Order:
    """An order of 200 tasks that are like those of no other order."""
    made = _large()
    made.packet.object.jobs[0].job.object.requests.of["cpu"] = 9 + at / _GROUPS
    return made


async def _wake(channel: grpc.aio.Channel, stop: asyncio.Event) -> None:
    """Small orders that are placed, so that there is a cycle each time."""
    while not stop.is_set():
        small = order()
        small.packet.object.jobs[0].job.object.requests.of["cpu"] = 0.001
        await _submit(channel, [small])
        await asyncio.sleep(0.1)


async def _slowest(channel: grpc.aio.Channel, identity: str) -> float:
    stub = orders_pb2_grpc.OrdersStub(channel)
    took = []
    end = time.perf_counter() + _GET_SECONDS
    while time.perf_counter() < end:
        started = time.perf_counter()
        await stub.Get(common_pb2.GetRequest(name=identity))
        took.append(time.perf_counter() - started)
        await asyncio.sleep(0.005)
    return quantile(took, 0.99)


async def _cycles(channel: grpc.aio.Channel) -> int:
    found = await cycles_pb2_grpc.CyclesStub(channel).List(common_pb2.ListRequest(limit=1000))
    return int(max(cycle.n for cycle in found.items))


def _measured(replicas: int) -> Measured:
    with ExitStack() as stack:
        here = stack.enter_context(stage(replicas=replicas, targets=0))
        asyncio.run(_patient(here))
        stack.enter_context(here.simulated(count=_TARGETS, capacity="cpu=1000000", duration="1h"))
        asyncio.run(_ready(here))
        stack.enter_context(_stopped())
        return asyncio.run(_measure(here, replicas))


async def _patient(here: Stage) -> None:
    """Sessions that outlast the bench, and cycles as large as they get."""
    settings = cluster_pb2.Settings(joblet_lease=3600, heartbeat=600, cycle_budget=5 * DEFAULT.cycle_budget)
    async with token_channel(here.endpoints()[0]) as channel:
        await cluster_pb2_grpc.ClusterStub(channel).UpdateSettings(settings)


async def _ready(here: Stage) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    async with token_channel(here.endpoints()[0]) as channel:
        stub = targets_pb2_grpc.TargetsStub(channel)
        while True:
            found = (await stub.List(common_pb2.ListRequest())).items
            if sum(target.status.phase == "Ready" for target in found) == _TARGETS:
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"not all targets are Ready after {_READY_SECONDS} s")
            await asyncio.sleep(0.1)


@contextmanager
def _stopped() -> Iterator[None]:
    """The joblets, which are the only children that this process still has, say nothing for a while."""
    children = [int(pid) for pid in subprocess.check_output(["pgrep", "-P", str(os.getpid())], text=True).split()]
    joblets = [pid for pid in children if b"joblet" in _command(pid)]
    for pid in joblets:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in joblets:
            os.kill(pid, signal.SIGCONT)


def _command(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


async def _measure(here: Stage, replicas: int) -> Measured:
    store = Store(EtcdOptions((here.etcd(),)), SystemClock())
    pid = here.up_json()["replicas"][0]["pid"]
    async with token_channel(here.endpoints()[0]) as channel:
        await _cordon(channel, cordoned=True)
        empty = _memory(pid)
        await _submit(channel, [_large() for _ in range(_TASKS // _IN_ORDER)])
        filled = _memory(pid)
        started = time.perf_counter()
        await _cordon(channel, cordoned=False)
        while await _placed(channel) < _TASKS:
            if time.perf_counter() - started > _PATIENCE_SECONDS:
                raise SystemExit("not everything was placed in time, or the leader changed and its last record is lost")
            await asyncio.sleep(0.02)
        took = time.perf_counter() - started
        value = await _sample(store)
        await _cordon(channel, cordoned=True)
        before = _memory(pid)
        await _submit(channel, [order() for _ in range(_SINGLE)])
        single = (_memory(pid) - before) / _SINGLE
        bare = await _bare(store, here.etcd(), value, replicas)
    await store.close()
    return Measured(_TASKS / took, bare, (filled - empty) / _TASKS, single)


def _large() -> orders_pb2.Order:
    made = order()
    made.packet.object.jobs[0].count = _IN_ORDER
    return made


async def _cordon(channel: grpc.aio.Channel, *, cordoned: bool) -> None:
    """All targets at once."""
    found = (await targets_pb2_grpc.TargetsStub(channel).List(common_pb2.ListRequest())).items
    for target in found:
        target.cordoned = cordoned
        for field in ("status", "live"):
            target.ClearField(field)
    objects = [cluster_pb2.Object(target=target) for target in found]
    await cluster_pb2_grpc.ClusterStub(channel).Apply(cluster_pb2.ApplyRequest(objects=objects))


async def _submit(channel: grpc.aio.Channel, orders: list[orders_pb2.Order]) -> None:
    stub = orders_pb2_grpc.OrdersStub(channel)
    for at in range(0, len(orders), 500):
        answer = await stub.SubmitBatch(orders_pb2.SubmitBatchRequest(orders=orders[at : at + 500]))
        refused = [result for result in answer.results if result.HasField("failure")]
        if refused:
            raise SystemExit(f"refused: {refused[0].failure.message}")


def _memory(pid: int) -> int:
    """What the replica has resident."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _placed(channel: grpc.aio.Channel) -> int:
    """By the records of the cycles, which are written last."""
    found = await cycles_pb2_grpc.CyclesStub(channel).List(common_pb2.ListRequest(limit=1000))
    return sum(cycle.placed for cycle in found.items)


async def _sample(store: Store) -> bytes:
    async for page in store.pages(f"{keys.ROOT}desired/"):
        return page.values[0].value
    raise SystemExit("nothing was placed")


async def _bare(store: Store, etcd: str, value: bytes, replicas: int) -> float:
    command = (sys.executable, "-m", "tests.benchmarks.watcher", etcd, "/bare/")
    watchers = [await asyncio.create_subprocess_exec(*command) for _ in range(replicas)]
    try:
        await asyncio.sleep(2.0)
        limit = asyncio.Semaphore(_UNDER_WAY)

        async def write(number: int) -> None:
            async with limit:
                items = [
                    Item(then=tuple(put(f"/bare/{number}/{part}/{at}", value) for at in range(_PUTS)))
                    for part in range(_UNDER_WAY)
                ]
                await store.commit_group(items)

        started = time.perf_counter()
        await asyncio.gather(*(write(number) for number in range(_TASKS // (_PUTS * _UNDER_WAY))))
        return _TASKS / (time.perf_counter() - started)
    finally:
        for watcher in watchers:
            watcher.terminate()
            await watcher.wait()
