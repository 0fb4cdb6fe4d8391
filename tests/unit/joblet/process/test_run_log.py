"""The output of one attempt, read from its folder."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.joblet.drivers.process.run_log import RunLog, tail_start
from controlplane.joblet.drivers.process.rundir import End, RunDir
from controlplane.joblet.log_source import LogQuery, OutputPiece
from controlplane.model.errors import NotFound
from controlplane.model.fulfilment import TaskRef


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def a_log(run: RunDir, **fields: Any) -> RunLog:
    return RunLog(run, LogQuery(order="o", fulfilment="f", task=TaskRef(job="j", index=0, attempt=1), **fields))


async def all_of(log: RunLog, most: int = 1 << 20) -> list[OutputPiece]:
    pieces = []
    while (piece := await log.read(most)) is not None:
        pieces.append(piece)
    log.close()
    return pieces


def end(run: RunDir) -> None:
    run.write_end(End(how="exited"))


async def test_both_outputs_are_read_in_pieces_that_know_their_place(run: RunDir) -> None:
    (run.path / "stdout").write_bytes(b"abcde")
    (run.path / "stderr").write_bytes(b"xy")
    assert await all_of(a_log(run), most=3) == [
        OutputPiece("stdout", 0, b"abc"),
        OutputPiece("stdout", 3, b"de"),
        OutputPiece("stderr", 0, b"xy"),
    ]


async def test_one_output_can_be_chosen_and_gone_on_with(run: RunDir) -> None:
    (run.path / "stdout").write_bytes(b"abcde")
    (run.path / "stderr").write_bytes(b"xyz")
    assert await all_of(a_log(run, stream="stderr", start=(0, 2))) == [OutputPiece("stderr", 2, b"z")]
    assert await all_of(a_log(run, start=(5, 3))) == []
    assert await all_of(a_log(run, start=(9, 9))) == []


async def test_an_attempt_that_wrote_nothing_has_an_empty_log(run: RunDir) -> None:
    assert await all_of(a_log(run)) == []


async def test_unfollowed_it_ends_with_what_was_there(run: RunDir) -> None:
    (run.path / "stdout").write_bytes(b"ab")
    log = a_log(run)
    assert await log.read(1) == OutputPiece("stdout", 0, b"a")
    with (run.path / "stdout").open("ab") as file:
        file.write(b"cd")
    assert await all_of(log) == [OutputPiece("stdout", 1, b"b")]


async def test_followed_it_waits_for_more_and_ends_with_the_attempt(run: RunDir) -> None:
    log = a_log(run, follow=True)
    reading = asyncio.ensure_future(log.read(100))
    await asyncio.sleep(0)
    (run.path / "stdout").write_bytes(b"one\n")
    assert await reading == OutputPiece("stdout", 0, b"one\n")
    reading = asyncio.ensure_future(log.read(100))
    with (run.path / "stdout").open("ab") as file:
        file.write(b"two\n")
    assert await reading == OutputPiece("stdout", 4, b"two\n")
    reading = asyncio.ensure_future(log.read(100))
    end(run)
    assert await reading is None
    log.close()


async def test_followed_one_output_does_not_silence_the_other(run: RunDir) -> None:
    (run.path / "stdout").write_bytes(b"1\n" * 100)
    (run.path / "stderr").write_bytes(b"e\n")
    end(run)
    pieces = await all_of(a_log(run, follow=True), most=4)
    assert [piece.stream for piece in pieces[:2]] == ["stdout", "stderr"]
    assert sum(len(piece.data) for piece in pieces) == 202


async def test_what_is_no_plain_file_is_not_read(run: RunDir) -> None:
    os.mkfifo(run.path / "stdout")
    log = a_log(run)
    with pytest.raises(NotFound, match="plain file"):
        await log.read(10)
    log.close()


async def test_a_folder_that_is_removed_meanwhile_can_be_read_to_its_end(run: RunDir, tmp_path: Path) -> None:
    (run.path / "stdout").write_bytes(b"abcd")
    log = a_log(run, stream="stdout")
    assert await log.read(1) == OutputPiece("stdout", 0, b"a")
    (run.path / "stdout").unlink()
    assert await all_of(log) == [OutputPiece("stdout", 1, b"bcd")]


@given(st.lists(st.binary(max_size=5)), st.integers(1, 6), st.booleans())
def test_the_tail_is_the_last_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], count: int, finished: bool
) -> None:
    told = [line.replace(b"\n", b".") + b"\n" for line in lines]
    if told and not finished:
        told[-1] = told[-1][:-1]
    content = b"".join(told)
    path = tmp_path_factory.getbasetemp() / "tail"
    path.write_bytes(content)
    file = os.open(path, os.O_RDONLY)
    try:
        start = tail_start(file, len(content), count)
    finally:
        os.close(file)
    assert content[start:] == b"".join([line for line in told if line][-count:])
