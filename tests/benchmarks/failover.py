"""failover: from the leader's death to the first cycle that the next one commits, nothing else going on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from controlplane.aio.clock import SystemClock
from controlplane.model.leadership import Candidate
from controlplane.store import codec, keys, transaction
from controlplane.store.kv import Store
from controlplane.store.watch import watch
from tests.benchmarks.rows import Row, quantile
from tests.benchmarks.stage import Stage, stage

_KILLS = int(os.environ.get("BENCH_KILLS", "20"))
_READY_SECONDS = 30.0


async def _leader(store: Store) -> tuple[int, Candidate]:
    """The candidate with the lowest create revision, as etcd itself says."""
    while True:
        found: list[Any] = []
        async for page in store.pages(keys.CANDIDATES.prefix):
            found.extend(page.values)
        if found:
            first = min(found, key=lambda value: value.create_revision)
            return first.create_revision, codec.decode(first.value, Candidate)
        await asyncio.sleep(0.01)


async def _next_cycle(store: Store, epoch: int, from_revision: int) -> float:
    async for batch in watch(store.channels, f"{keys.ROOT}cycles/", from_revision):
        for change in batch.changes:
            parsed = keys.parse(change.key)
            if change.value is not None and parsed is not None and int(parsed[1][0]) > epoch:
                return time.perf_counter()
    raise AssertionError("a watch has no end")


async def _bare(store: Store) -> float:
    """The least that any hand-over costs: one revocation and two transactions, one after the other."""
    taken = []
    for _ in range(20):
        lease = await store.grant(5)
        started = time.perf_counter()
        await store.revoke(lease)
        for _ in range(2):
            await store.commit(transaction.Item(then=(transaction.put("/bare/failover", b"x"),)))
        taken.append(time.perf_counter() - started)
    return quantile(taken, 0.5)


async def _all_stand(store: Store, here: Stage, replicas: int) -> None:
    """Every replica of `up.json` is a candidate again."""
    until = time.monotonic() + _READY_SECONDS
    while time.monotonic() < until:
        pids = {replica["pid"] for replica in here.up_json()["replicas"]}
        found: list[Any] = []
        async for page in store.pages(keys.CANDIDATES.prefix):
            found.extend(codec.decode(value.value, Candidate) for value in page.values)
        if len(found) == replicas and {candidate.pid for candidate in found} == pids:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError("the replicas did not all come back")


async def _kills(here: Stage, how: Callable[[int], Any], count: int) -> tuple[float, list[float]]:
    store = Store(here.etcd_options(), SystemClock())
    bare = await _bare(store)
    taken = []
    for _ in range(count):
        await _all_stand(store, here, 3)
        await asyncio.sleep(1.0)  # standbys reach the leader's pulse; users do not kill leaders faster than this
        epoch, leader = await _leader(store)
        waiting = asyncio.create_task(_next_cycle(store, epoch, await store.revision() + 1))
        await asyncio.sleep(0.05)
        started = time.perf_counter()
        how(leader.pid)
        taken.append(await waiting - started)
        if how is _stop:
            await asyncio.sleep(5.0)
            os.kill(leader.pid, signal.SIGCONT)
    await store.close()
    return bare, taken


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _terminate(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def _stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def run() -> list[Row]:
    with stage() as here:
        bare, killed = asyncio.run(_kills(here, _kill, _KILLS))
        _, terminated = asyncio.run(_kills(here, _terminate, 5))
    with stage() as here:
        _, stopped = asyncio.run(_kills(here, _stop, 1))
    p50, worst, term, stop = quantile(killed, 0.5), max(killed), max(terminated), max(stopped)
    return [
        Row("failover", "kill -9, median", p50 * 1000, "ms", bare * 1000, p50 / bare, "< 100 ms", p50 < 0.1),
        Row(
            "failover",
            f"kill -9, worst of {_KILLS}",
            worst * 1000,
            "ms",
            bare * 1000,
            worst / bare,
            "< 500 ms",
            worst < 0.5,
        ),
        Row("failover", "SIGTERM, worst of 5", term * 1000, "ms", bare * 1000, term / bare, "< 100 ms", term < 0.1),
        Row("failover", "SIGSTOP", stop * 1000, "ms", bare * 1000, stop / bare, "< 3 s", stop < 3),
    ]
