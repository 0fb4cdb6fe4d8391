"""The parts of a drill on real processes and a real etcd: the offer, the view of etcd, the faults."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import msgspec
import pytest

from controlplane.aio.clock import SystemClock
from controlplane.standalone.drilling.commit_watch import CommitWatch
from controlplane.standalone.drilling.faults import Faults
from controlplane.standalone.drilling.offer import Offer
from controlplane.standalone.endpoints import EndpointSource
from controlplane.store import codec, keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, put
from controlplane.wire.v1 import cluster_pb2, orders_pb2
from tests.etcd import Etcd
from tests.unit.client.scripted_replica import Broken, ScriptedReplica, always
from tests.unit.verify import past
from tests.unit.verify.past import ORDER

ANSWER = orders_pb2.OrderResponse(revision=5)


def recorded(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


async def test_every_acknowledged_order_is_on_record_once_and_the_rate_is_reached(tmp_path: Path) -> None:
    replica = ScriptedReplica(Orders_Submit=always(ANSWER))
    async with replica.serve():
        offer = Offer(EndpointSource((replica.endpoint,)), 20, tmp_path / "record", SystemClock())
        running = asyncio.create_task(offer.run())
        await offer.reached.wait()
        offer.stop()
        await running
    asked = [request.id for _, request in replica.requests]
    assert sorted(offer.acknowledged) == sorted(recorded(tmp_path / "record")) == sorted(asked)
    assert len(set(asked)) == len(asked) >= 18


async def test_an_order_whose_answer_is_lost_is_repeated_elsewhere_under_its_identity(tmp_path: Path) -> None:
    async def breaks(request: Any) -> Any:
        raise Broken

    bad, good = ScriptedReplica(Orders_Submit=breaks), ScriptedReplica(Orders_Submit=always(ANSWER))
    async with bad.serve(), good.serve():
        offer = Offer(EndpointSource((bad.endpoint, good.endpoint)), 20, tmp_path / "record", SystemClock())
        running = asyncio.create_task(offer.run())
        await offer.reached.wait()
        offer.stop()
        await running
    lost = {request.id for _, request in bad.requests}
    answered = [request.id for _, request in good.requests]
    assert lost
    assert lost <= set(answered)
    assert sorted(recorded(tmp_path / "record")) == sorted(answered)


@pytest.fixture
async def store(etcd: Etcd) -> AsyncIterator[Store]:
    opened = Store(EtcdOptions((etcd.endpoint,)), SystemClock())
    yield opened
    await opened.close()


@pytest.fixture
async def observer(store: Store) -> AsyncIterator[CommitWatch]:
    found = CommitWatch(store, SystemClock())
    await found.begin()
    running = asyncio.create_task(found.run())
    yield found
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def write(store: Store, key: str, value: msgspec.Struct) -> int:
    return (await store.commit(Item(then=(put(key, codec.encode(value)),)))).revision


async def test_the_first_cycle_of_a_later_epoch_is_seen_and_one_of_the_same_epoch_is_not(
    store: Store, observer: CommitWatch
) -> None:
    await write(store, keys.cycle(7, 1), past.cycle(7, 1))
    await observer.until(lambda: observer.worked(7))
    await write(store, keys.cycle(7, 2), past.cycle(7, 2))
    assert observer.next_cycle(7) is None
    await write(store, keys.cycle(9, 3), past.cycle(9, 3))
    await observer.until(lambda: observer.next_cycle(7) is not None)
    assert not observer.worked(8)


async def test_what_ended_between_begin_and_run_is_seen(store: Store) -> None:
    observer = CommitWatch(store, SystemClock())
    await write(store, keys.cycle(7, 1), past.cycle(7, 1))
    await observer.begin()
    assert observer.worked(7)
    await write(store, keys.order_status(ORDER), past.status("Succeeded"))
    running = asyncio.create_task(observer.run())
    await observer.until(lambda: bool(observer.ends))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_ends_of_orders_are_seen(store: Store, observer: CommitWatch) -> None:
    await write(store, keys.order_status(ORDER), past.status("Running"))
    await write(store, keys.order_status(ORDER), past.status("Failed"))
    await observer.until(lambda: bool(observer.ends))
    assert observer.ends == {ORDER: "Failed"}


async def test_the_leader_is_the_oldest_candidate(store: Store, observer: CommitWatch) -> None:
    assert await observer.leader() is None
    first = await write(store, keys.candidate(9), past.candidate("replica-9"))
    await write(store, keys.candidate(1), past.candidate("replica-1"))
    assert await observer.leader() == (first, past.candidate("replica-9"))


@pytest.fixture
def victim() -> Iterator[Popen[bytes]]:
    """A process that stands for a leading replica."""
    process = Popen(["sleep", "600"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def publish(folder: Path, pid: int, endpoint: str = "127.0.0.1:1") -> EndpointSource:
    replica = {"id": "replica-1", "pid": pid, "grpc": endpoint, "http": ""}
    (folder / "up.json").write_text(json.dumps({"etcd": [], "replicas": [replica]}))
    return EndpointSource(data_dir=folder)


async def lead(store: Store, pid: int) -> int:
    candidate = msgspec.structs.replace(past.candidate(), pid=pid)
    epoch = await write(store, keys.candidate(1), candidate)
    await write(store, keys.cycle(epoch, 1), past.cycle(epoch, 1))
    return epoch


async def until(process: Popen[bytes], what: int) -> None:
    """Waits for WEXITED, WSTOPPED or WCONTINUED without taking the news away from anybody."""
    await asyncio.to_thread(os.waitid, os.P_PID, process.pid, what | os.WNOWAIT)


async def test_a_killed_leader_is_followed_by_the_next_cycle_and_its_own_return(
    store: Store, observer: CommitWatch, victim: Popen[bytes], tmp_path: Path
) -> None:
    back = ScriptedReplica(Cluster_Status=always(cluster_pb2.StatusResponse(id="replica-1")))
    async with back.serve():
        faults = Faults(publish(tmp_path, victim.pid), observer, SystemClock(), stop_seconds=0)
        epoch = await lead(store, victim.pid)
        striking = asyncio.create_task(faults.strike(signal.SIGKILL))
        await until(victim, os.WEXITED)
        await write(store, keys.cycle(epoch + 5, 2), past.cycle(epoch + 5, 2))
        publish(tmp_path, victim.pid + 1, back.endpoint)
        found = await striking
    assert (found.replica, found.epoch) == ("replica-1", epoch)
    assert found.seconds > 0
    assert back.count("Cluster.Status") >= 1


async def test_a_process_that_etcd_and_up_json_do_not_agree_on_is_left_alone(
    store: Store, observer: CommitWatch, victim: Popen[bytes], tmp_path: Path
) -> None:
    faults = Faults(publish(tmp_path, victim.pid), observer, SystemClock(), stop_seconds=0)
    await lead(store, victim.pid + 1)
    await observer.until(lambda: observer.next_cycle(0) is not None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await faults.strike(signal.SIGKILL)
    assert victim.poll() is None


async def test_a_stopped_leader_is_continued_when_the_drill_is_interrupted(
    store: Store, observer: CommitWatch, victim: Popen[bytes], tmp_path: Path
) -> None:
    faults = Faults(publish(tmp_path, victim.pid), observer, SystemClock(), stop_seconds=600)
    await lead(store, victim.pid)
    striking = asyncio.create_task(faults.strike(signal.SIGSTOP))
    await until(victim, os.WSTOPPED)
    striking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await striking
    await until(victim, os.WCONTINUED)
