"""footprint: what an order and a target cost while nothing happens to them: bytes of etcd, memory of a replica."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import grpc

from controlplane.client import Client
from controlplane.wire.v1 import orders_pb2, orders_pb2_grpc
from tests.benchmarks.offering import at_full_speed, make_packet, named_order
from tests.benchmarks.rows import Row
from tests.benchmarks.stage import Stage, stage
from tests.credentials import TOKEN

_ORDERS = int(os.environ.get("BENCH_FOOTPRINT_ORDERS", "50000"))
_TARGETS = int(os.environ.get("BENCH_FOOTPRINT_TARGETS", "1000"))
_BATCH = 500
_PATIENCE_SECONDS = 300.0
# Until replicas have taken in what was written, and the memory of answers is given back.
_SETTLE_SECONDS = 10.0


def _memory(here: Stage) -> float:
    """Bytes, of a replica in the middle: the median over all."""
    sizes = []
    for replica in here.up_json()["replicas"]:
        status = Path(f"/proc/{replica['pid']}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        sizes.append(int(line.split()[1]) * 1024.0)
    return sorted(sizes)[len(sizes) // 2]


async def _etcd_bytes(here: Stage) -> float:
    process = await asyncio.create_subprocess_exec(
        *("etcdctl", f"--endpoints={here.etcd()}", "endpoint", "status", "--write-out=json"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "ETCDCTL_API": "3"},
    )
    output, _ = await process.communicate()
    (told,) = json.loads(output)
    return float(told["Status"]["dbSizeInUse"])


async def _footprint(here: Stage) -> tuple[float, float]:
    await asyncio.sleep(_SETTLE_SECONDS)
    return await _etcd_bytes(here), _memory(here)


async def _orders(here: Stage) -> tuple[float, float]:
    """(bytes of etcd, bytes of a replica's memory) for an order that waits."""
    await make_packet(here.endpoints()[0])
    before = await _footprint(here)
    left = _ORDERS // _BATCH

    async def batch(channel: grpc.aio.Channel) -> int:
        nonlocal left
        if left <= 0:
            await asyncio.sleep(1)
            return 0
        left -= 1
        request = orders_pb2.SubmitBatchRequest(orders=[named_order() for _ in range(_BATCH)])
        await orders_pb2_grpc.OrdersStub(channel).SubmitBatch(request)
        return _BATCH

    while left > 0:
        await at_full_speed(here.endpoints(), batch, seconds=5.0, under_way=4)
    after = await _footprint(here)
    return (after[0] - before[0]) / _ORDERS, (after[1] - before[1]) / _ORDERS


async def _targets(here: Stage, before: tuple[float, float]) -> tuple[float, float]:
    async with Client(here.endpoints(), token=TOKEN) as client:
        until = time.monotonic() + _PATIENCE_SECONDS
        while (ready := (await client.cluster.totals()).targets.ready) < _TARGETS:
            sys.stderr.write(f"  {ready} Ready\n")
            if time.monotonic() > until:
                raise TimeoutError("the targets did not become Ready")
            await asyncio.sleep(2)
    after = await _footprint(here)
    return (after[0] - before[0]) / _TARGETS, (after[1] - before[1]) / _TARGETS


def run() -> list[Row]:
    with stage(targets=0) as here:
        order = asyncio.run(_orders(here))
    with stage(targets=0) as here:
        before = asyncio.run(_footprint(here))
        empty = before[1] / 2**20
        with here.simulated(count=_TARGETS, capacity="cpu=16", duration="50ms"):
            target = asyncio.run(_targets(here, before))
    return [
        Row("footprint", "a replica without work", empty, "MiB"),
        Row("footprint", f"etcd, an order of {_ORDERS} that wait", order[0], "bytes"),
        Row("footprint", f"a replica, an order of {_ORDERS} that wait", order[1], "bytes"),
        Row("footprint", f"etcd, a target of {_TARGETS}", target[0], "bytes"),
        Row("footprint", f"a replica, a target of {_TARGETS}", target[1], "bytes"),
    ]
