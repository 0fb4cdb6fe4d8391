"""flow: submitted -> finished on simulated targets, three replicas, sustained; etcd writes per order counted."""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from dataclasses import dataclass, field

import grpc

from controlplane.aio.clock import SystemClock
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import OrderStatus
from controlplane.store import codec, keys, transaction
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.watch import watch
from controlplane.wire.v1 import orders_pb2, orders_pb2_grpc
from tests.benchmarks.offering import order
from tests.benchmarks.rows import Row
from tests.benchmarks.stage import stage

_SECONDS = float(os.environ.get("BENCH_FLOW_SECONDS", "60"))
_OFFERED = 600
_STEP_SECONDS = 0.05
_PATIENCE_SECONDS = 60.0
_BARE_PUTS = 20_000
_COUNTERS = ("etcd_mvcc_put_total", "etcd_mvcc_delete_total")


@dataclass
class Seen:
    """What a watcher counted: it follows the ends of orders only, so that watching costs little of what is measured."""

    finished: set[str] = field(default_factory=set)
    succeeded: int = 0
    last: float = 0.0


async def _count(store: Store, seen: Seen, from_revision: int) -> None:
    async for batch in watch(store.channels, keys.order_status(""), from_revision):
        for change in batch.changes:
            if change.value is None:
                continue
            phase = codec.decode(change.value.value, OrderStatus).phase
            if phase in FINAL_ORDER and change.key not in seen.finished:
                seen.finished.add(change.key)
                seen.succeeded += phase == "Succeeded"
                seen.last = time.perf_counter()


def writes_of(etcd: str) -> float:
    """Keys put and deleted since etcd started, as etcd itself counts them."""
    with urllib.request.urlopen(f"{etcd}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.split()[0] in _COUNTERS)


async def _offer(endpoints: list[str], seconds: float) -> int:
    """Orders at a steady rate, in small batches, to each replica in turn."""
    channels = [grpc.aio.insecure_channel(endpoint) for endpoint in endpoints]
    started = time.perf_counter()
    sent = 0
    calls: list[asyncio.Future[orders_pb2.SubmitBatchResponse]] = []
    while (elapsed := time.perf_counter() - started) < seconds:
        due = int(elapsed * _OFFERED) - sent
        if due > 0:
            stub = orders_pb2_grpc.OrdersStub(channels[len(calls) % len(channels)])
            request = orders_pb2.SubmitBatchRequest(orders=[order() for _ in range(due)])
            calls.append(asyncio.ensure_future(stub.SubmitBatch(request)))
            sent += due
        await asyncio.sleep(_STEP_SECONDS)
    answers = await asyncio.gather(*calls)
    for channel in channels:
        await channel.close()
    return sum(not result.HasField("failure") for answer in answers for result in answer.results)


async def _bare(store: Store) -> float:
    """Puts a second of a bare writer with one watcher, hundred a transaction, four under way."""
    limit = asyncio.Semaphore(4)
    value = b"x" * 300

    async def write(number: int) -> None:
        async with limit:
            item = transaction.Item(
                then=tuple(transaction.put(f"/bare/{number}/{position}", value) for position in range(100))
            )
            await store.commit(item)

    started = time.perf_counter()
    await asyncio.gather(*(write(number) for number in range(_BARE_PUTS // 100)))
    return _BARE_PUTS / (time.perf_counter() - started)


async def _measure(endpoints: list[str], etcd: str) -> tuple[float, Seen, int, float]:
    """(puts a second of a bare writer, what was seen, orders accepted, seconds until the last of them had ended)"""
    store = Store(EtcdOptions((etcd,)), SystemClock())
    bare = await _bare(store)
    seen = Seen()
    counting = asyncio.create_task(_count(store, seen, await store.revision() + 1))
    started = time.perf_counter()
    accepted = await _offer(endpoints, _SECONDS)
    while len(seen.finished) < accepted and time.perf_counter() - started < _SECONDS + _PATIENCE_SECONDS:
        await asyncio.sleep(0.1)
    counting.cancel()
    await store.close()
    return bare, seen, accepted, (seen.last or time.perf_counter()) - started


def run() -> list[Row]:
    with stage(targets=0) as here, here.simulated(count=10, capacity="cpu=200", duration="50ms"):
        before = writes_of(here.etcd())
        bare, seen, accepted, took = asyncio.run(_measure(here.endpoints(), here.etcd()))
        writes = (writes_of(here.etcd()) - before - _BARE_PUTS) / max(accepted, 1)
    rate = len(seen.finished) / took
    bare_rate = bare / max(writes, 1)
    return [
        Row("flow", "submitted -> finished", rate, "orders/s", bare_rate, rate / bare_rate, ">= 500/s", rate >= 500),
        Row("flow", "etcd writes an order", writes, "keys"),
        Row(
            "flow",
            "not finished or failed",
            accepted - seen.succeeded,
            "orders",
            goal="0",
            met=accepted == seen.succeeded,
        ),
    ]
