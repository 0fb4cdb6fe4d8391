"""What a command writes, kept up to a limit, at its own place in its file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from controlplane.joblet.drivers.process import shim_output
from controlplane.joblet.drivers.process.run_log import OutputReader, RunLog
from controlplane.joblet.drivers.process.rundir import RunDir
from controlplane.joblet.drivers.process.shim_output import OutputFile, Pump
from controlplane.joblet.log_source import LogQuery
from controlplane.model.fulfilment import TaskRef

LIMIT = 1 << 20
BLOCK = bytes(range(1, 65)) * 1024


def a_file(tmp_path: Path, limit: int = LIMIT) -> OutputFile:
    (tmp_path / "run").mkdir()
    return OutputFile(str(tmp_path / "run" / "stdout"), limit)


def read(tmp_path: Path, **asked: int) -> bytes:
    task = TaskRef(job="j", index=0, attempt=1)
    query = LogQuery(order="o", fulfilment="f", task=task, stream="stdout", **asked)  # type: ignore[arg-type]
    output = OutputReader(RunDir(tmp_path / "run"), "stdout", query)
    pieces, place = [], None
    while (piece := output.read(1000)) is not None:
        assert place is None or piece.offset >= place
        pieces.append(piece.data)
        place = piece.offset + len(piece.data)
    output.close()
    return b"".join(pieces)


def test_a_short_output_is_whole(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    file.take(b"one\n")
    file.take(b"two\n")
    file.close()
    assert read(tmp_path) == b"one\ntwo\n"


def test_of_a_long_output_the_end_is_kept_and_the_log_says_what_is_not(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    for _ in range(100):
        file.take(BLOCK)
    file.take(b"the end\n")
    file.close()
    path = tmp_path / "run" / "stdout"
    assert path.stat().st_size == 100 * len(BLOCK) + 8
    assert path.stat().st_blocks * 512 <= LIMIT + LIMIT // 8 + 2 * (64 << 10)
    told = read(tmp_path)
    words, _, kept = told.partition(b" ...\n")
    left_out = int(words.split()[1])
    assert words == f"\n... {left_out} bytes left out".encode()
    assert len(kept) == path.stat().st_size - left_out >= LIMIT
    assert kept.endswith(b"the end\n")
    assert b"\0" not in kept


def test_without_a_limit_all_is_kept(tmp_path: Path) -> None:
    file = a_file(tmp_path, limit=0)
    for _ in range(40):
        file.take(BLOCK)
    file.close()
    assert read(tmp_path) == BLOCK * 40


def test_where_a_file_can_have_no_holes_the_beginning_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim_output, "_fallocate", lambda *_: -1)
    file = a_file(tmp_path)
    for _ in range(100):
        file.take(BLOCK)
    file.close()
    path = tmp_path / "run" / "stdout"
    assert path.stat().st_size == 100 * len(BLOCK)
    assert path.stat().st_blocks * 512 <= 2 * LIMIT
    assert read(tmp_path).startswith(BLOCK)
    assert read(tmp_path).endswith(b" bytes left out ...\n")


def test_what_a_full_disk_does_not_take_is_left_out_and_the_command_does_not_notice(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    file.take(BLOCK)
    good, file.file = file.file, os.open("/dev/full", os.O_WRONLY)
    file.take(BLOCK * 2)
    os.close(file.file)
    file.file = good
    file.take(b"goes on\n")
    file.close()
    told = read(tmp_path)
    assert told == BLOCK + f"\n... {2 * len(BLOCK)} bytes left out ...\n".encode() + b"goes on\n"


def test_a_reader_that_goes_on_in_what_was_left_out_hears_the_rest_of_it(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    for _ in range(100):
        file.take(BLOCK)
    file.close()
    assert b" bytes left out ...\n" in read(tmp_path, start=(5000, 0))[:60]  # type: ignore[arg-type]
    assert b"left out" not in read(tmp_path, start=(99 * len(BLOCK), 0))  # type: ignore[arg-type]


async def test_the_last_lines_of_a_file_of_any_size_are_found_at_once(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "stdout"
    path.touch()
    os.truncate(path, 1 << 43)
    task = TaskRef(job="j", index=0, attempt=1)
    query = LogQuery(order="o", fulfilment="f", task=task, stream="stdout", tail_lines=3)
    log = RunLog(RunDir(tmp_path / "run"), query)
    async with asyncio.timeout(20):
        assert await log.read(1000) is not None
    log.close()


def test_the_pump_carries_both_outputs_to_their_end(tmp_path: Path) -> None:
    pump = Pump((str(tmp_path / "stdout"), str(tmp_path / "stderr")), LIMIT)
    first, second = (os.dup(end) for end in pump.ends)
    pump.start()
    os.write(first, b"out")
    os.write(second, b"err")
    os.close(first)
    os.close(second)
    pump.finish(20)
    assert ((tmp_path / "stdout").read_bytes(), (tmp_path / "stderr").read_bytes()) == (b"out", b"err")
