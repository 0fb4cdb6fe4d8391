"""stats: what 2,000 idle targets cost: etcd writes a second, and the leader's share of a core."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from controlplane.aio.clock import SystemClock
from controlplane.client import Client
from controlplane.model.pace import Pace, pace
from controlplane.model.settings import Settings
from controlplane.model.target import Live
from controlplane.store import codec, keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from tests.benchmarks.flow import writes_of
from tests.benchmarks.rows import Row
from tests.benchmarks.stage import Stage, stage
from tests.credentials import TOKEN

_TARGETS = int(os.environ.get("BENCH_STATS_TARGETS", "2000"))
_REPLICAS = int(os.environ.get("BENCH_STATS_REPLICAS", "3"))
_SECONDS = float(os.environ.get("BENCH_STATS_SECONDS", "60"))
_PATIENCE_SECONDS = 600.0
_TICK = os.sysconf("SC_CLK_TCK")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


async def _settled(store: Store, client: Client, wanted: Pace) -> float:
    """Returns when every target is Ready and every session has the lease that so many targets are given."""
    started = time.perf_counter()
    while time.perf_counter() - started < _PATIENCE_SECONDS:
        leases = []
        async for page in store.pages(f"{keys.ROOT}inventory/"):
            leases += [codec.decode(value.value, Live).lease_seconds for value in page.values]
        ready = (await client.cluster.totals()).targets.ready
        sys.stderr.write(f"  {ready} Ready, {leases.count(wanted.lease_seconds)} sessions settled\n")
        if ready == _TARGETS == leases.count(wanted.lease_seconds):
            return time.perf_counter() - started
        await asyncio.sleep(5)
    raise TimeoutError("the targets did not settle")


async def _measure(here: Stage) -> tuple[float, float, float]:
    """(seconds until all had settled, keys written a second, the leader's processor seconds a second)"""
    store = Store(EtcdOptions((here.etcd(),)), SystemClock())
    async with Client(here.endpoints(), token=TOKEN) as client:
        settled = await _settled(store, client, pace(Settings(), _TARGETS))
        # What the settling itself left to be told.
        await asyncio.sleep(20)
        leader = (await client.cluster.leader()).id
        pid = next(replica["pid"] for replica in here.up_json()["replicas"] if replica["id"] == leader)
        written, used, started = writes_of(here), _cpu_seconds(pid), time.perf_counter()
        await asyncio.sleep(_SECONDS)
        passed = time.perf_counter() - started
        written, used = writes_of(here) - written, _cpu_seconds(pid) - used
    await store.close()
    return settled, written / passed, used / passed


def run() -> list[Row]:
    with (
        stage(replicas=_REPLICAS, targets=0) as here,
        here.simulated(count=_TARGETS, capacity="cpu=16", duration="50ms"),
    ):
        settled, written, used = asyncio.run(_measure(here))
    return [
        Row("stats", f"{_TARGETS} targets settled", settled, "s"),
        Row("stats", "etcd writes while idle", written, "keys/s", goal="< 200/s", met=written < 200),
        Row("stats", "leader while idle", used * 100, "% of a core", goal="< 10 %", met=used < 0.1),
    ]
