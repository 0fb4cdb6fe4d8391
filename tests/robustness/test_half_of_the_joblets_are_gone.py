"""Half of ten targets of a running `up` fall silent, or die and come back, under load; nothing is lost or done twice.

The load is real commands, one of ten with a unique resource. What is told: the rate at which orders were taken, and at
which they finished.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controlplane.model.fulfilment import Claim, Ended, Fulfilment
from controlplane.model.target import TargetStatus
from controlplane.store import codec, keys
from controlplane.verify.joblet_records import JobletRecord
from controlplane.wire.v1 import cluster_pb2, common_pb2, jobs_pb2, orders_pb2, packets_pb2
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import Load, load
from tests.robustness.patience import PATIENCE_SECONDS, until
from tests.robustness.upped import Upped, an_up
from tests.robustness.world import OWN, UNIQUE

KEPT = ("P1", "P2", "P3", "P4", "P5", "P7", "P9")
RATE = 100
LEASE, GRACE, KILL = 6, 3, 1
LATE_SECONDS = 1.0
# A run counts only if the offered load was really reached before the fault.
REACHED = 0.9
SETTINGS = cluster_pb2.Settings(joblet_lease=LEASE, heartbeat=1, target_grace=GRACE, kill_grace=KILL)
# For joblets that may take their time to come back.
PATIENT = cluster_pb2.Settings(joblet_lease=LEASE, heartbeat=1, target_grace=PATIENCE_SECONDS, kill_grace=KILL)
HALF = tuple(f"local-{number}" for number in range(1, 11, 2))


def an_order(identity: str, number: int) -> orders_pb2.Order:
    """Of ten, eight do nothing, one sleeps, one holds a unique resource for a moment."""
    kind = number % 10
    job = jobs_pb2.Job(
        command=("sleep", "1") if kind == 3 else ("true",),
        requests=common_pb2.Quantities(of={"cpu": 1.0}),
        resources=[UNIQUE[number // 10 % len(UNIQUE)]] if kind == 7 else [],
    )
    packet = packets_pb2.Packet(jobs=[packets_pb2.PacketJob(job=packets_pb2.JobRef(object=job), count=1)])
    return orders_pb2.Order(id=identity, packet=orders_pb2.PacketRef(object=packet))


@dataclass(frozen=True)
class Rates:
    offered: float
    taken: float
    finished: float

    @property
    def steady(self) -> bool:
        """Offered, taken and done at that rate: nothing is caught up with, and nothing piles up."""
        return min(self.offered, self.taken, self.finished) >= RATE * REACHED

    def __str__(self) -> str:
        return f"offered {self.offered:.0f}/s, taken {self.taken:.0f}/s, finished {self.finished:.0f}/s"


async def warm(world: Upped, running: Load, windows: int = 3) -> Rates:
    """Of the first three seconds in which the load was really reached; of the last ones tried when it never was."""
    await world.witness.until(lambda: "Succeeded" in world.witness.phases.values(), "an order has finished")
    for _ in range(windows):
        rates = await measured(world, running)
        if rates.steady:
            break
    return rates


async def measured(world: Upped, running: Load, seconds: float = 3.0) -> Rates:
    loop = asyncio.get_running_loop()
    since, done = loop.time(), world.witness.finals(running.acknowledged)
    await asyncio.sleep(seconds)
    rates, took = running.rates(since, loop.time()), loop.time() - since
    finished = (world.witness.finals(running.acknowledged) - done) / took
    return Rates(rates.offered, rates.reached, finished)


async def occupy(world: Upped, target: str, resource: str = "") -> str:
    """An order that runs there for good, the first time it is tried. The load leaves it room: it needs no cpu."""
    order = an_order(world.client.mint.make(), 0)
    job = order.packet.object.jobs[0].job.object
    del job.command[:]
    job.command.extend(["sh", "-c", 'test "$CONTROLPLANE_ATTEMPT" != 1 || exec sleep 600'])
    job.resources.extend([resource] if resource else [])
    job.requests.CopyFrom(common_pb2.Quantities(of={"memory": 1.0}))
    others = [name for name in world.joblets if name not in HALF]
    job.prefer.extend([jobs_pb2.Tier(targets=[target]), jobs_pb2.Tier(targets=others)])
    order.priority = 100
    await world.client.orders.submit(order)
    await until(lambda: started(world, order.id, target), f"{order.id} has started on {target}")
    return order.id


def started(world: Upped, order: str, target: str) -> bool:
    return any(record.order == order for record in promises.recorded(world) if record.target == target)


def seen(world: Upped, key: str, *, gone: bool, after: float) -> float:
    """When that was first seen of the key."""
    changes = zip(world.witness.changes, world.witness.moments, strict=True)
    return next(at for change, at in changes if change.key == key and (change.value is None) == gone and at > after)


def phases(world: Upped, target: str) -> list[str]:
    found: list[str] = []
    for change in world.witness.changes:
        if change.key == keys.target_status(target) and change.value is not None:
            phase = codec.decode(change.value.value, TargetStatus).phase
            if found[-1:] != [phase]:
                found.append(phase)
    return found


def lost(world: Upped) -> Iterator[tuple[float, Ended]]:
    """When each attempt was given back that its target took along."""
    for change, moment in zip(world.witness.changes, world.witness.moments, strict=True):
        if change.key.startswith(f"{keys.ROOT}status/ended/") and change.value is not None:
            ended = codec.decode(change.value.value, Ended)
            if any(task.reason == "TargetLost" for task in ended.tasks):
                yield moment, ended


@dataclass
class Given:
    """How many attempts were given back, and how long after their session was gone the last one was; and placed."""

    count: int = 0
    back: float = 0.0
    placed: float = 0.0


def given_elsewhere(world: Upped, gone: dict[str, float], orders: Collection[str] = ()) -> Given:
    """Of these orders, or of all, on the targets whose sessions were gone then."""
    placed: dict[tuple[str, str, int, int], float] = {}
    for change, moment in zip(world.witness.changes, world.witness.moments, strict=True):
        new = change.value is not None and change.value.create_revision == change.revision
        if new and change.value is not None and change.key.startswith(f"{keys.ROOT}desired/"):
            one = codec.decode(change.value.value, Fulfilment)
            placed |= {(one.order, task.job, task.index, task.attempt): moment for task in one.tasks}
    given = Given()
    for moment, ended in lost(world):
        if ended.target not in gone or (orders and ended.order not in orders):
            continue
        given.count += 1
        given.back = max(given.back, moment - gone[ended.target])
        for task in ended.tasks:
            next_try = placed[ended.order, task.job, task.index, task.attempt + 1]
            given.placed = max(given.placed, next_try - gone[ended.target])
    return given


def holders_never_overlapped(world: Upped, gone: dict[str, float]) -> int:
    """From both sides: a holder that its target took along was dead, by its joblet's record, before etcd let it go."""
    ends: dict[str, JobletRecord] = {
        record.fulfilment: record for record in promises.recorded(world) if record.event == "ended"
    }
    claims: dict[str, str] = {}
    checked = 0
    for change, moment in zip(world.witness.changes, world.witness.moments, strict=True):
        if not change.key.startswith(f"{keys.ROOT}claims/"):
            continue
        if change.value is not None:
            claims[change.key] = codec.decode(change.value.value, Claim).fulfilment
            continue
        end = ends.get(claims.pop(change.key))
        if end is not None:
            checked += 1
            assert end.monotonic <= moment, f"{end} lived when its claim was released at {moment}"
            if end.target in gone and end.monotonic > gone[end.target] - LEASE:
                assert end.monotonic <= gone[end.target] + KILL, f"{end} outlived its session and the time to die"
    return checked


@pytest.mark.timeout(600)
@pytest.mark.parametrize("timed", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_five_of_ten_joblets_fall_silent_and_their_work_is_done_elsewhere(
    tmp_path: Path, tell: Tell, timed: bool
) -> None:
    """`timed`: the bound holds under the whole load, which takes a machine that is not busy with anything else."""
    async with an_up(tmp_path / "up", targets=10, settings=SETTINGS) as world:
        # What has to wait for room waits for others too; these wait for the grace time only.
        marked = {await occupy(world, target, OWN if target == HALF[0] else "") for target in HALF}
        async with load(world.endpoints, RATE, an_order) as running:
            told = await warm(world, running, windows=10 if timed else 3)
            stopped = asyncio.get_running_loop().time()
            for target in HALF:
                world.signal(target, signal.SIGSTOP)
            for target in HALF:
                await world.phase(target, "Failed")
            gone = {target: seen(world, keys.live(target), gone=True, after=stopped) for target in HALF}
            await promises.final(world, marked)
            for target in HALF:
                world.signal(target, signal.SIGCONT)
            for target in HALF:
                await world.phase(target, "Ready")
            await promises.kept(world, running, *KEPT)
        for target in HALF:
            assert phases(world, target)[-4:] == ["Ready", "Suspect", "Failed", "Ready"]
        every, first = given_elsewhere(world, gone), given_elsewhere(world, gone, marked)
        checked = holders_never_overlapped(world, gone)
        tell(
            f"{told}; {len(running.acknowledged)} orders; {every.count} attempts given back at most "
            f"{every.back:.2f} s, those with room placed {first.placed:.2f} s and the last {every.placed:.2f} s "
            f"after their session was gone (bound {GRACE + LATE_SECONDS:g} s); {checked} releases compared"
        )
        assert first.count == len(HALF)
        promises.succeeded_once(world, marked)
        if timed:
            assert told.steady
            assert max(every.back, first.placed) <= GRACE + LATE_SECONDS


@pytest.mark.timeout(600)
async def test_five_of_ten_joblets_are_killed_and_adopt_their_work(tmp_path: Path, tell: Tell) -> None:
    async with an_up(tmp_path / "up", targets=10, settings=PATIENT) as world:
        async with load(world.endpoints, RATE, an_order) as running:
            told = await warm(world, running)
            await world.restart_joblets(HALF)
            more = await warm(world, running)
            await promises.kept(world, running, *KEPT)
        checked = holders_never_overlapped(world, {})
        lost_count = sum(1 for _ in lost(world))
        tell(
            f"{told}; afterwards {more}; {len(running.acknowledged)} orders, {lost_count} attempts lost; "
            f"{checked} releases of unique resources compared"
        )
        assert lost_count == 0, "what was adopted was not given away"
        assert {phase for target in HALF for phase in phases(world, target)} <= {"Provisioning", "Ready", "Suspect"}
