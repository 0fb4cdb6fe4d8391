"""F19: a slow watch consumer, and a burst of 10,000 events."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

from controlplane.aio.clock import SystemClock, chance, wall_milliseconds
from controlplane.client import Client
from controlplane.model import times
from controlplane.model.identity import Mint
from controlplane.model.job import Job
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, put
from controlplane.wire.v1 import common_pb2, jobs_pb2
from tests.credentials import TOKEN
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import load
from tests.robustness.network import linked_to_etcd
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.recovery import Fault
from tests.robustness.world import Plan, World, a_world

EVENTS = 10_000
_TOGETHER = 100
SLOW_BYTES_PER_SECOND = 1_000_000


async def burst(world: World) -> None:
    """10,000 jobs, as a user with a large file would write them."""
    mint, created = Mint(wall_milliseconds, chance), times.show(SystemClock().wall())
    for first in range(0, EVENTS, _TOGETHER):
        jobs = [
            Job(name=f"burst-{number}", id=mint.make(), created=created, command=("true",))
            for number in range(first, first + _TOGETHER)
        ]
        operations = tuple(put(keys.config("jobs", job.name), codec.encode(job)) for job in jobs)
        await world.witness.store.commit(Item(then=operations))


async def names(watch: AsyncGenerator[jobs_pb2.JobEvent, None]) -> set[str]:
    """Of as many jobs as the burst had, however long they take, as long as one comes after the other."""
    heard: set[str] = set()
    async with asyncio.timeout(PATIENCE_SECONDS) as patience:
        while len(heard) < EVENTS:
            event = await anext(watch)
            if event.type == "put":
                heard.add(event.object.name)
                patience.reschedule(asyncio.get_running_loop().time() + PATIENCE_SECONDS)
    return heard


async def test_every_cache_equals_etcd_ten_seconds_after_a_burst(tmp_path: Path, tell: Tell) -> None:
    async with linked_to_etcd(tmp_path, Plan(ttl=5)) as (world, links), load(world.endpoints) as running:
        rates = await running.warm()
        slow, stopped = world.standbys
        links[slow.name].down.bytes_per_second = SLOW_BYTES_PER_SECOND
        stopped.signal(signal.SIGSTOP)
        await burst(world)
        fault = Fault(world)
        stopped.signal(signal.SIGCONT)
        replicas = world.replicas.values()
        await asyncio.gather(*(promises.cache_catches_up(world, replica, within=10.0) for replica in replicas))
        took = asyncio.get_running_loop().time() - fault.moment
        tell(f"{await fault.went_on(within=10.0, rates=rates)}; every cache equals etcd {took:.1f} s after the burst")
        links[slow.name].down.bytes_per_second = 0
        await promises.kept(world, running, "P8")


async def test_a_watcher_that_does_not_read_hears_of_everything_when_it_does(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        async with Client(world.endpoints, token=TOKEN) as client:
            watch = client.jobs.watch(common_pb2.WatchRequest())
            assert (await anext(watch)).type == "sync"
            fault = Fault(world)
            await burst(world)
            told = await fault.went_on(within=10.0, rates=rates)
            await promises.cache_catches_up(world, world.leader, within=10.0)
            heard = await names(watch)
        tell(f"{told}; {len(heard)} names heard late")
        assert heard == {f"burst-{number}" for number in range(EVENTS)}
        await promises.kept(world, running, "P8")
