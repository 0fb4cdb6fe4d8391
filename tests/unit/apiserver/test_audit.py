"""Every mutating or refused call has its line; no flood of refusals and no disk stops calls, or hides how many."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from controlplane.apiserver.audit import (
    DIFFERENT,
    MOST_CHARACTERS,
    MOST_SOURCES,
    REFUSALS_A_SECOND,
    AuditLog,
    AuditRecord,
    RefusalSums,
    bounded,
    host_of,
    line_of,
    sum_of,
)
from tests.clock import ManualClock

A_CHANGE = AuditRecord(
    time="2026-01-01T00:00:00.000Z",
    subject="ada",
    via="token-1",
    peer="ipv4:10.0.0.1:4711",
    method="controlplane.v1.Orders.Submit",
    verb="create",
    kind="order",
    name="o-1",
    owner="ada",
    decision="allowed",
    revision=42,
    request_id="r-1",
)


def a_refusal(number: int = 0, *, subject: str = "eve", host: str = "10.0.0.9") -> AuditRecord:
    return msgspec.structs.replace(
        A_CHANGE,
        subject=subject,
        peer=f"ipv4:{host}:{5000 + number}",
        name=f"o-{number}",
        decision="refused",
        reason="may not create orders",
        revision=0,
        request_id=f"r-{number}",
    )


class Stage:
    """An audit log on a real file, and its time."""

    def __init__(self, path: Path, *, most_lines: int = 10_000) -> None:
        self._path = path
        self.clock = ManualClock()
        # Whoever waits in vain runs into the time limit of the test.
        self.audit = AuditLog(str(path), self.clock, most_lines=most_lines, patience_seconds=600)
        self.audit.start()

    async def pass_a_second(self) -> None:
        await asyncio.sleep(0)
        self.clock.pass_seconds(1)
        for _ in range(3):
            await asyncio.sleep(0)

    async def lines(self) -> list[dict[str, Any]]:
        await self.audit.close(60)
        return [json.loads(line) for line in self._path.read_text().splitlines()]


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "audit")


async def test_a_mutating_call_has_one_line_with_all_fields(stage: Stage) -> None:
    await stage.audit.write(A_CHANGE)
    (line,) = await stage.lines()
    assert line == {
        "time": "2026-01-01T00:00:00.000Z",
        "subject": "ada",
        "via": "token-1",
        "peer": "ipv4:10.0.0.1:4711",
        "method": "controlplane.v1.Orders.Submit",
        "verb": "create",
        "kind": "order",
        "name": "o-1",
        "owner": "ada",
        "decision": "allowed",
        "reason": "",
        "revision": 42,
        "request_id": "r-1",
        "count": 1,
    }


async def test_few_refusals_have_a_line_each(stage: Stage) -> None:
    for second in range(3):
        for number in range(REFUSALS_A_SECOND):
            stage.audit.refuse(a_refusal(number + 100 * second))
        await stage.pass_a_second()
    lines = await stage.lines()
    assert [line["name"] for line in lines] == [
        f"o-{100 * second + number}" for second in range(3) for number in range(10)
    ]
    assert {line["count"] for line in lines} == {1}


async def test_many_refusals_of_a_source_are_summed_up_each_second(stage: Stage) -> None:
    for _ in range(2):
        for number in range(25):
            stage.audit.refuse(a_refusal(number))
        stage.audit.refuse(a_refusal(subject="ada"))
        stage.audit.refuse(a_refusal(host="10.0.0.8"))
        await stage.pass_a_second()
    counts = [line["count"] for line in await stage.lines()]
    assert counts == [*[1] * 12, 15] * 2


async def test_a_sum_tells_what_its_refusals_have_in_common(stage: Stage) -> None:
    for number in range(REFUSALS_A_SECOND + 2):
        stage.audit.refuse(a_refusal(number))
    line = (await stage.lines())[-1]
    expected = msgspec.structs.replace(a_refusal(), peer="ipv4:10.0.0.9", name=DIFFERENT, request_id=DIFFERENT, count=2)
    assert line == msgspec.to_builtins(expected)


async def test_the_end_writes_the_sums(stage: Stage) -> None:
    for number in range(100):
        stage.audit.refuse(a_refusal(number))
    assert sum(line["count"] for line in await stage.lines()) == 100


async def test_a_flood_of_invented_sources_is_counted_in_bounded_lines(stage: Stage) -> None:
    for number in range(5000):
        stage.audit.refuse(a_refusal(subject=f"invented-{number}", host=f"10.1.{number >> 8}.{number & 255}"))
    await stage.pass_a_second()
    lines = await stage.lines()
    assert sum(line["count"] for line in lines) == 5000
    assert len(lines) == MOST_SOURCES + REFUSALS_A_SECOND + 1
    assert (lines[-1]["subject"], lines[-1]["peer"]) == (DIFFERENT, DIFFERENT)


def test_the_sources_of_a_flood_take_bounded_memory_also_when_every_source_is_summed() -> None:
    sums = RefusalSums()
    for number in range(20 * MOST_SOURCES):
        sums.add(a_refusal(subject=f"invented-{number}"))
    taken = sums.take()
    assert len(taken) == MOST_SOURCES + 1
    assert sum(record.count for record in taken) == 20 * MOST_SOURCES
    assert (bool(sums), sums.take()) == (False, [])


async def test_a_pipe_that_nobody_reads(tmp_path: Path) -> None:
    """Refusals leave half of the queue to changes; changes wait when it is full; and the end comes in time."""
    pipe, most_lines = tmp_path / "pipe", 20
    os.mkfifo(pipe)
    stage = Stage(pipe, most_lines=most_lines)
    async with asyncio.timeout(30):
        for number in range(1000):
            stage.audit.refuse(a_refusal(subject=f"eve-{number % 100}"))
        for _ in range(3):
            await stage.pass_a_second()
        for _ in range(most_lines // 2):
            await stage.audit.write(A_CHANGE)
        waiting = [asyncio.create_task(stage.audit.write(A_CHANGE)) for _ in range(3 * most_lines)]
        await asyncio.sleep(0)
        assert not waiting[-1].done()
        await stage.audit.close(0.05)
        await asyncio.gather(*waiting)
    # Lets the thread go.
    lines = [json.loads(line) for line in pipe.read_bytes().splitlines()]
    assert sum(line["count"] for line in lines if line["decision"] == "refused") == 1000
    assert sum(line["decision"] == "allowed" for line in lines) == 3 * most_lines + most_lines // 2


async def test_a_full_disk_stops_no_call() -> None:
    with capture_logs():
        stage = Stage(Path("/dev/full"), most_lines=10)
        async with asyncio.timeout(30):
            for number in range(100):
                await stage.audit.write(A_CHANGE)
                stage.audit.refuse(a_refusal(number))
            await stage.audit.close()


async def test_lost_lines_are_told_by_the_next_line(tmp_path: Path) -> None:
    with capture_logs():
        stage = Stage(tmp_path / "folder" / "audit", most_lines=10)
        for _ in range(50):
            await stage.audit.write(A_CHANGE)
        (tmp_path / "folder").mkdir()
        stage.audit.reopen()
        told, *lines = await stage.lines()
    assert (told["verb"], told["kind"], told["decision"], told["count"]) == ("lost", "audit", "failed", 50 - len(lines))
    assert told["time"] == "2026-01-01T00:00:00.000Z"


async def test_a_rotation_told_by_sighup_loses_no_line(stage: Stage, tmp_path: Path) -> None:
    path, rotated = tmp_path / "audit", tmp_path / "audit.1"
    await stage.audit.write(A_CHANGE)
    while not path.exists():
        await asyncio.sleep(0)
    path.rename(rotated)
    loop, told = asyncio.get_running_loop(), asyncio.Event()

    def reopen() -> None:
        stage.audit.reopen()
        told.set()

    loop.add_signal_handler(signal.SIGHUP, reopen)
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        await told.wait()
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
    await stage.audit.write(msgspec.structs.replace(A_CHANGE, name="o-2"))
    lines = await stage.lines()
    assert lines[-1]["name"] == "o-2"
    assert len(lines) + len(rotated.read_text().splitlines()) == 2


async def test_without_a_path_nothing_is_kept_and_nobody_waits() -> None:
    audit = AuditLog("", ManualClock(), most_lines=1)
    audit.start()
    for number in range(100):
        await audit.write(A_CHANGE)
        audit.refuse(a_refusal(number))
    audit.reopen()
    await audit.close()


async def test_calls_after_the_end_go_on(stage: Stage) -> None:
    assert await stage.lines() == []
    await stage.audit.write(A_CHANGE)
    stage.audit.refuse(a_refusal())
    assert await stage.lines() == []


def test_texts_are_bounded_and_stay_on_their_line() -> None:
    hostile = "\n\x1b[2J\x9b\u2028\ud800" * 1000
    record = AuditRecord(
        time="", subject=hostile, via=hostile, peer=hostile, method=hostile, verb=hostile, kind=hostile, name=hostile,
        owner=hostile, decision="refused", reason=hostile, request_id=hostile,
    )  # fmt: skip
    line = line_of(bounded(record))
    assert len(line) < 32 << 10
    assert line.isascii()
    assert not any(byte < 32 for byte in line[:-1])
    read = msgspec.json.decode(line)
    assert len(read["subject"]) == MOST_CHARACTERS
    assert read["subject"].startswith("\n\x1b[2J\x9b\u2028?\n")


def test_a_sum_of_equal_records_keeps_their_texts() -> None:
    assert sum_of(A_CHANGE, A_CHANGE) == msgspec.structs.replace(A_CHANGE, count=2)
    other = msgspec.structs.replace(A_CHANGE, revision=43, count=5)
    assert sum_of(A_CHANGE, other) == msgspec.structs.replace(A_CHANGE, revision=0, count=6)


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:50051", "ipv4:127.0.0.1"),
        ("ipv6:%5B::1%5D:50051", "ipv6:%5B::1%5D"),
        ("ipv6:[fe80::1]:50051", "ipv6:[fe80::1]"),
        ("10.0.0.1:80", "10.0.0.1"),
        ("unix:/run/api", "unix:/run/api"),
        ("unix:", "unix:"),
        ("fe80::1", "fe80::1"),
        ("", ""),
    ],
)
def test_the_host_of_a_peer(peer: str, host: str) -> None:
    assert host_of(peer) == host
