"""submit: orders accepted a second, one by one and batched, three replicas up, beside a bare echo of the same run."""

from __future__ import annotations

import asyncio

import grpc

from controlplane.wire.v1 import orders_pb2, orders_pb2_grpc
from tests.benchmarks.echo import echo
from tests.benchmarks.offering import at_full_speed, make_packet, named_order
from tests.benchmarks.rows import Row
from tests.benchmarks.stage import stage

_SECONDS = 5.0
_UNDER_WAY = 128
_BATCH = 500


async def _one(channel: grpc.aio.Channel) -> int:
    await orders_pb2_grpc.OrdersStub(channel).Submit(named_order())
    return 1


async def _batch(channel: grpc.aio.Channel) -> int:
    request = orders_pb2.SubmitBatchRequest(orders=[named_order() for _ in range(_BATCH)])
    answer = await orders_pb2_grpc.OrdersStub(channel).SubmitBatch(request)
    return sum(not result.HasField("failure") for result in answer.results)


def run() -> list[Row]:
    with echo() as address:
        bare = asyncio.run(at_full_speed([address], _one, seconds=_SECONDS, under_way=_UNDER_WAY))
    with stage(targets=0) as here:
        asyncio.run(make_packet(here.endpoints()[0]))
        single = asyncio.run(at_full_speed(here.endpoints(), _one, seconds=_SECONDS, under_way=_UNDER_WAY))
    with stage(targets=0) as here:
        asyncio.run(make_packet(here.endpoints()[0]))
        batched = asyncio.run(at_full_speed(here.endpoints(), _batch, seconds=_SECONDS, under_way=4))
    ratio = single / bare
    return [
        Row("submit", "one by one", single, "orders/s", bare, ratio, ">= 40 % of a bare echo", ratio >= 0.4),
        Row("submit", "batched", batched, "orders/s", bare, batched / bare, ">= 10,000/s", batched >= 10_000),
    ]
