"""Lines come to the file in their order, once; a disk that hangs or fails keeps nobody for ever and hides no loss."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from controlplane.aio.line_log import LineLog
from tests.clock import ManualClock

MOST_LINES = 10


def a_line(number: int) -> bytes:
    return f"line {number}\n".encode()


def about_lost(count: int) -> bytes:
    return f"lost {count}\n".encode()


def a_log(path: Path, *, most_lines: int = MOST_LINES, patience_seconds: float = 600.0) -> LineLog:
    return LineLog(
        str(path), ManualClock(), about_lost=about_lost, most_lines=most_lines, patience_seconds=patience_seconds
    )


class Hanging:
    """A log whose thread hangs in a write, with no line in its hands, until `go_on`."""

    def __init__(self, path: Path, *, patience_seconds: float = 600.0) -> None:
        self._hangs, self._goes_on = threading.Event(), threading.Event()
        self._path = path
        self.log = LineLog(
            str(path),
            ManualClock(),
            about_lost=self._about_lost,
            most_lines=MOST_LINES,
            patience_seconds=patience_seconds,
        )
        self.log.lose(1)
        self.log.start()
        assert self._hangs.wait(10)

    def _about_lost(self, count: int) -> bytes:
        self._hangs.set()
        self._goes_on.wait()
        return about_lost(count)

    async def fill(self) -> None:
        for number in range(MOST_LINES):
            await self.log.put(a_line(number))

    def go_on(self) -> None:
        self._goes_on.set()

    async def written(self) -> list[bytes]:
        """All lines but the first, which tells of the line that was lost for the sake of the test."""
        self.go_on()
        await self.log.close(60)
        first, *lines = self._path.read_bytes().splitlines(keepends=True)
        assert first == about_lost(1)
        return lines


async def begin(log: LineLog, *lines: bytes) -> list[asyncio.Task[None]]:
    puts = [asyncio.create_task(log.put(line)) for line in lines]
    await asyncio.sleep(0)
    return puts


async def test_lines_are_written_in_their_order(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log")
    log.start()
    await asyncio.gather(*(log.put(a_line(number)) for number in range(1000)))
    await log.close()
    assert (tmp_path / "log").read_bytes() == b"".join(map(a_line, range(1000)))


async def test_put_waits_only_while_the_queue_is_full(tmp_path: Path) -> None:
    hanging = Hanging(tmp_path / "log")
    await hanging.fill()
    puts = await begin(hanging.log, a_line(10), a_line(11))
    assert [put.done() for put in puts] == [False, False]
    hanging.go_on()
    await asyncio.gather(*puts)
    assert await hanging.written() == list(map(a_line, range(12)))


async def test_an_offer_never_waits_and_leaves_room_for_those_who_do(tmp_path: Path) -> None:
    hanging = Hanging(tmp_path / "log")
    assert [hanging.log.offer(a_line(number), most_lines=2) for number in range(3)] == [True, True, False]
    await hanging.log.put(a_line(3))
    assert await hanging.written() == [a_line(0), a_line(1), a_line(3)]


async def test_a_cancelled_waiter_leaves_no_line_and_takes_no_room(tmp_path: Path) -> None:
    hanging = Hanging(tmp_path / "log")
    await hanging.fill()
    leaving, staying = await begin(hanging.log, b"left\n", b"stayed\n")
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert leaving.cancelled()
    hanging.go_on()
    await staying
    lines = await hanging.written()
    assert sorted(lines) == sorted([*map(a_line, range(MOST_LINES)), b"stayed\n", about_lost(1)])


async def test_a_waiter_is_cancelled_in_the_moment_in_which_there_is_room(tmp_path: Path) -> None:
    hanging = Hanging(tmp_path / "log")
    await hanging.fill()
    (leaving,) = await begin(hanging.log, b"left\n")
    # The waiter cannot run between its cancellation and the close, which would queue its line.
    leaving.cancel()
    lines = await hanging.written()
    assert sorted(lines) == sorted([*map(a_line, range(MOST_LINES)), about_lost(1)])


async def test_patience_ends_and_the_lost_line_is_told(tmp_path: Path) -> None:
    hanging = Hanging(tmp_path / "log", patience_seconds=0.01)
    await hanging.fill()
    await hanging.log.put(b"without room\n")
    assert sorted(await hanging.written()) == sorted([*map(a_line, range(MOST_LINES)), about_lost(1)])


async def test_close_writes_also_what_waits_and_the_last_lines(tmp_path: Path) -> None:
    hanging = Hanging(tmp_path / "log")
    await hanging.fill()
    puts = await begin(hanging.log, a_line(10), a_line(11))
    await hanging.log.close(0, last=[b"last\n"])
    await asyncio.gather(*puts)
    assert await hanging.written() == [*map(a_line, range(12)), b"last\n"]


async def test_a_line_after_the_end_keeps_nobody(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log")
    log.start()
    await log.close()
    await log.put(a_line(0))
    assert not log.offer(a_line(0), most_lines=MOST_LINES)
    assert (tmp_path / "log").read_bytes() == b""


async def test_a_pipe_that_nobody_reads_keeps_neither_the_loop_nor_the_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    log = a_log(tmp_path / "pipe")
    log.start()
    async with asyncio.timeout(30):
        # The thread may take the queue once, before it hangs.
        puts = await begin(log, *map(a_line, range(3 * MOST_LINES)))
        assert MOST_LINES <= sum(put.done() for put in puts) <= 2 * MOST_LINES
        await log.close(0.05)
        await asyncio.gather(*puts)
    # Lets the thread go.
    with (tmp_path / "pipe").open("rb") as pipe:
        assert pipe.read() == b"".join(map(a_line, range(3 * MOST_LINES)))


async def test_a_full_disk_keeps_nobody_waiting_and_is_told_once_a_minute() -> None:
    clock = ManualClock()
    log = LineLog("/dev/full", clock, about_lost=about_lost, most_lines=MOST_LINES, patience_seconds=600)
    with capture_logs() as logged:
        log.start()
        # Not enough time to try each line again before it is dropped.
        async with asyncio.timeout(30):
            for _ in range(3):
                # A put that had to wait returns when the thread, which has complained by then, has dropped lines.
                await asyncio.gather(*(log.put(a_line(number)) for number in range(50 * MOST_LINES)))
                clock.pass_seconds(59)
            await log.close(60)
    told = [(entry["event"], entry["path"]) for entry in logged]
    assert told == [("lines cannot be written", "/dev/full")] * 2 + [("lines were not written", "/dev/full")]
    assert logged[-1]["lines"] == 150 * MOST_LINES


async def test_lines_wait_for_a_file_that_cannot_be_opened_and_the_first_line_tells_how_many_were_lost(
    tmp_path: Path,
) -> None:
    log = a_log(tmp_path / "folder" / "log")
    with capture_logs():
        log.start()
        await asyncio.gather(*(log.put(a_line(number)) for number in range(35)))
        (tmp_path / "folder").mkdir()
        log.reopen()
        await log.put(a_line(35))
        await log.close(60)
    first, *lines = (tmp_path / "folder" / "log").read_bytes().splitlines(keepends=True)
    lost = 36 - len(lines)
    assert lost >= 36 - 3 * MOST_LINES
    assert first == about_lost(lost)
    assert lines == list(map(a_line, range(lost, 36)))


async def test_a_rotation_by_rename_loses_no_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = a_log(path, most_lines=100)
    log.start()
    for number in range(2000):
        if number % 100 == 50:
            while not path.exists():
                await asyncio.sleep(0)
            path.rename(tmp_path / f"log.{number:04}")
            # Lines of the meantime go to the file of before.
            await log.put(a_line(number))
            log.reopen()
        else:
            await log.put(a_line(number))
    await log.close(60)
    files = [*(tmp_path / f"log.{number:04}" for number in range(50, 2000, 100)), path]
    assert b"".join(file.read_bytes() for file in files) == b"".join(map(a_line, range(2000)))
    assert path.read_bytes().endswith(a_line(1999))


async def test_the_former_file_is_used_while_the_path_cannot_be_opened(tmp_path: Path) -> None:
    folder, moved = tmp_path / "folder", tmp_path / "moved"
    folder.mkdir()
    log = a_log(folder / "log")
    with capture_logs():
        log.start()
        while not (folder / "log").exists():
            await asyncio.sleep(0)
        folder.rename(moved)
        log.reopen()
        await log.put(a_line(0))
        await log.close(60)
    assert (moved / "log").read_bytes() == a_line(0)


async def test_an_idle_log_leaves_a_renamed_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = a_log(path)
    log.start()
    while not path.exists():
        await asyncio.sleep(0)
    path.rename(tmp_path / "log.1")
    log.reopen()
    while not path.exists():
        await asyncio.sleep(0)
    await log.close()


async def test_a_log_that_was_never_started_ends_at_once(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log")
    async with asyncio.timeout(30):
        await log.close(60)


@pytest.mark.parametrize("lines", [1, 3000])
async def test_stdout_gets_the_lines(capfd: pytest.CaptureFixture[str], lines: int) -> None:
    log = a_log(Path("-"))
    log.start()
    await asyncio.gather(*(log.put(a_line(number)) for number in range(lines)))
    log.reopen()
    await log.close(60)
    assert capfd.readouterr().out == "".join(f"line {number}\n" for number in range(lines))
