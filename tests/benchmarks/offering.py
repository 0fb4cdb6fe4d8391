"""Offering calls at full speed: so many under way at a time, for so long, over all endpoints in turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import grpc

from controlplane.aio.clock import chance, wall_milliseconds
from controlplane.model.identity import Mint
from controlplane.wire.v1 import jobs_pb2, orders_pb2, packets_pb2, packets_pb2_grpc
from tests.credentials import token_channel

PACKET = "bench"
_MINT = Mint(wall_milliseconds, chance)


def order(command: str = "true", *, target_policy: str | None = None) -> orders_pb2.Order:
    """One task, inline, with an identity of its own."""
    job = jobs_pb2.Job(command=[command])
    packet = packets_pb2.Packet(jobs=[packets_pb2.PacketJob(job=packets_pb2.JobRef(object=job))])
    made = orders_pb2.Order(id=_MINT.make(), packet=orders_pb2.PacketRef(object=packet), owner="bench")
    if target_policy is not None:
        made.target_policy = target_policy
    return made


def named_order() -> orders_pb2.Order:
    """The usual order: of a packet that is there already."""
    return orders_pb2.Order(id=_MINT.make(), packet=orders_pb2.PacketRef(name=PACKET), owner="bench")


async def make_packet(endpoint: str) -> None:
    """The packet that `named_order` orders."""
    job = jobs_pb2.Job(command=["true"])
    part = packets_pb2.PacketJob(job=packets_pb2.JobRef(object=job))
    async with token_channel(endpoint) as channel:
        await packets_pb2_grpc.PacketsStub(channel).Create(packets_pb2.Packet(name=PACKET, jobs=[part], owner="bench"))


async def at_full_speed(
    endpoints: list[str],
    call: Callable[[grpc.aio.Channel], Awaitable[int]],
    *,
    seconds: float,
    under_way: int,
) -> float:
    """How many a second were done; `call` does some and says how many. A short warm-up is not counted."""
    channels = [token_channel(endpoint) for endpoint in endpoints]
    done = 0
    counting = False
    stop = False

    async def work(number: int) -> None:
        nonlocal done
        channel = channels[number % len(channels)]
        while not stop:
            count = await call(channel)
            if counting:
                done += count

    workers = [asyncio.create_task(work(number)) for number in range(under_way)]
    await asyncio.sleep(1.0)
    counting, started = True, time.perf_counter()
    await asyncio.sleep(seconds)
    counting, took = False, time.perf_counter() - started
    stop = True
    await asyncio.gather(*workers)
    for channel in channels:
        await channel.close()
    return done / took
