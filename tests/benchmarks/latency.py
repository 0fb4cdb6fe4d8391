"""latency: from submit to running on an idle process target, one order at a time."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from controlplane.wire.v1 import common_pb2, fulfilments_pb2_grpc, orders_pb2_grpc
from tests.benchmarks.echo import echo
from tests.benchmarks.offering import order
from tests.benchmarks.rows import Row, quantile
from tests.benchmarks.stage import stage
from tests.credentials import token_channel

_ORDERS = 100
_BEGAN = ("Running", "Succeeded")


async def _bare(address: str) -> float:
    async with token_channel(address) as channel:
        stub = orders_pb2_grpc.OrdersStub(channel)
        taken = []
        for _ in range(_ORDERS):
            started = time.perf_counter()
            await stub.Submit(order())
            taken.append(time.perf_counter() - started)
    return quantile(taken, 0.5)


async def _measure(endpoints: list[str]) -> list[float]:
    """The watch of the order's fulfilments tells when its task runs: the first that anybody can see of it."""
    taken = []
    channels = [token_channel(endpoint) for endpoint in endpoints]
    for number in range(_ORDERS):
        channel = channels[number % len(channels)]
        wanted = order("true")
        watch: Any = fulfilments_pb2_grpc.FulfilmentsStub(channel).Watch(common_pb2.WatchRequest(order=wanted.id))
        while (await watch.read()).type != "sync":
            pass
        started = time.perf_counter()
        await orders_pb2_grpc.OrdersStub(channel).Submit(wanted)
        while (event := await watch.read()).type != "delete" and event.object.observed.phase not in _BEGAN:
            pass
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
