"""latency: from submit to running on an idle process target, one order at a time."""

from __future__ import annotations

import asyncio
import time

import grpc

from controlplane.wire.v1 import common_pb2, orders_pb2_grpc
from tests.benchmarks.echo import echo
from tests.benchmarks.offering import order
from tests.benchmarks.rows import Row, quantile
from tests.benchmarks.stage import stage

_ORDERS = 100
_BEGAN = ("Running", "Succeeded")


async def _bare(address: str) -> float:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = orders_pb2_grpc.OrdersStub(channel)
        taken = []
        for _ in range(_ORDERS):
            started = time.perf_counter()
            await stub.Submit(order())
            taken.append(time.perf_counter() - started)
    return quantile(taken, 0.5)


async def _measure(endpoints: list[str]) -> list[float]:
    """The watch of the order tells when a task of it runs; what it tells first is the time that a user sees."""
    taken = []
    channels = [grpc.aio.insecure_channel(endpoint) for endpoint in endpoints]
    for number in range(_ORDERS):
        stub = orders_pb2_grpc.OrdersStub(channels[number % len(channels)])
        wanted = order("true")
        started = time.perf_counter()
        await stub.Submit(wanted)
        watch = stub.Watch(common_pb2.WatchRequest(name=wanted.id))
        async for event in watch:
            counts = event.object.status.counts
            if counts.running or counts.succeeded or event.object.status.phase in _BEGAN[1:]:
                break
        taken.append(time.perf_counter() - started)
        watch.cancel()
    for channel in channels:
        await channel.close()
    return taken


def run() -> list[Row]:
    with echo() as address:
        bare = asyncio.run(_bare(address))
    with stage(targets=1) as here:
        taken = asyncio.run(_measure(here.endpoints()))
    p50, p99 = quantile(taken, 0.5), quantile(taken, 0.99)
    return [
        Row("latency", "submit -> running p50", p50 * 1000, "ms", bare * 1000, p50 / bare, "< 50 ms", p50 < 0.05),
        Row("latency", "submit -> running p99", p99 * 1000, "ms", bare * 1000, p99 / bare, "< 200 ms", p99 < 0.2),
    ]
