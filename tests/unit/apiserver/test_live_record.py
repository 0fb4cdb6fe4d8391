"""The live record of a session has one writer: one write at a time, nothing lost, nothing undone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from controlplane.aio.clock import SystemClock
from controlplane.apiserver.api_ports import Reads, Writes
from controlplane.apiserver.joblets.live_record import LiveRecord, capacity_change, leftovers_change, stats_change
from controlplane.apiserver.joblets.session import Session
from controlplane.model.errors import ControlPlaneError, Unavailable
from controlplane.model.target import Live
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, Outcome, Value
from tests.builders import NOW, a_session
from tests.picture import Told

TARGET, LEASE = "t1", 7
NOTHING: Any = None


class Etcd:
    """Takes writes when the test lets it; a write on another revision than the stored one is refused."""

    def __init__(self, live: Live) -> None:
        self.raw, self.revision, self.lease = codec.encode(live), 10, LEASE
        self.writes = 0
        self.open = asyncio.Event()
        self.open.set()
        self.error: ControlPlaneError | None = None

    @property
    def live(self) -> Live:
        return codec.decode(self.raw, Live)

    def put(self, live: Live) -> None:
        self.raw, self.revision = codec.encode(live), self.revision + 1

    async def write(self, item: Item) -> Outcome:
        self.writes += 1
        before = self.revision
        await self.open.wait()
        if self.error is not None:
            raise self.error
        if before != self.revision or self.lease != LEASE:
            found = Value(keys.live(TARGET), self.raw, 1, self.revision, self.lease)
            return Outcome(False, self.revision, (found,))
        (operation,) = item.then
        assert operation.value is not None
        self.raw, self.revision = operation.value, self.revision + 1
        return Outcome(True, self.revision, ())

    async def write_all(self, items: Sequence[Item]) -> list[Outcome | ControlPlaneError]:
        raise NotImplementedError


def a_record(etcd: Etcd) -> LiveRecord:
    told = Told()
    session = Session(TARGET, LEASE, etcd.revision, etcd.live, etcd.raw, 1.0)
    return LiveRecord(
        Reads(NOTHING, told.picture, told.ledgers), Writes(etcd, SystemClock(), NOTHING, NOTHING), session
    )


async def test_changes_that_come_during_a_write_are_stored_together_by_the_next() -> None:
    etcd = Etcd(a_session(TARGET, cpu=1))
    record = a_record(etcd)
    etcd.open.clear()
    assert record.update("leftovers", leftovers_change(3))
    storing = asyncio.create_task(record.store())
    await asyncio.sleep(0)
    capacity, stats = capacity_change({"cpu": 8.0}, TARGET), stats_change({"load": 2.0}, NOW)
    assert capacity is not None
    assert stats is not None
    assert [record.update("capacity", capacity), record.update("stats", stats)] == [False, False]
    assert not record.update("leftovers", leftovers_change(2))
    etcd.open.set()
    await storing
    live = etcd.live
    assert (live.leftovers, live.capacity, live.stats, live.reported) == (2, {"cpu": 8}, {"load": 2}, NOW)
    assert etcd.writes == 2


async def test_what_is_stored_already_is_not_written() -> None:
    etcd = Etcd(replace(a_session(TARGET, cpu=1), leftovers=3))
    record = a_record(etcd)
    assert not record.update("leftovers", leftovers_change(3))
    assert record.update("leftovers", leftovers_change(2))
    await record.store()
    assert not record.update("leftovers", leftovers_change(2))
    assert etcd.writes == 1


async def test_a_change_of_another_writer_stays() -> None:
    etcd = Etcd(a_session(TARGET, cpu=1))
    record = a_record(etcd)
    etcd.open.clear()
    assert record.update("leftovers", leftovers_change(3))
    storing = asyncio.create_task(record.store())
    await asyncio.sleep(0)
    etcd.put(replace(etcd.live, version="another"))
    etcd.open.set()
    await storing
    assert (etcd.live.leftovers, etcd.live.version) == (3, "another")


async def test_the_record_of_another_session_is_left_alone() -> None:
    etcd = Etcd(a_session(TARGET, cpu=1))
    record = a_record(etcd)
    etcd.lease = 8
    assert record.update("leftovers", leftovers_change(3))
    await record.store()
    assert (etcd.live.leftovers, etcd.writes) == (0, 1)


async def test_a_write_that_failed_is_left_to_the_next_heartbeat() -> None:
    etcd = Etcd(a_session(TARGET, cpu=1))
    record = a_record(etcd)
    etcd.error = Unavailable("etcd is away")
    assert record.update("leftovers", leftovers_change(3))
    await record.store()
    etcd.error = None
    assert record.update("leftovers", leftovers_change(3))
    await record.store()
    assert etcd.live.leftovers == 3


def test_what_is_no_capacity_and_what_are_no_stats_change_nothing() -> None:
    assert capacity_change({"cpu": -1.0}, TARGET) is None
    assert stats_change({}, NOW) is None
    assert stats_change({f"s{number}": 1.0 for number in range(65)}, NOW) is None
    live = replace(a_session(TARGET, cpu=1), stats={"load": 1}, reported="2026-01-01T00:00:00Z")
    same = stats_change({"load": 1.0, "broken": float("nan")}, NOW)
    assert same is not None
    assert same(live) is live
