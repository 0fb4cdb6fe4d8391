"""DIR/records.jsonl: what was really started and ended on this machine, one line each, only ever appended.

`cpctl verify` reads it to check that no attempt was started twice and that holders of a unique resource never
overlapped. So "started" is written before the start, and "ended" only when nothing of the attempt is left.

A large file becomes DIR/records.<number>.jsonl and is kept for a day after its last line, which is longer than etcd's
history is by default; all of them together are never above a bound.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec
import structlog

from controlplane.aio.clock import Clock
from controlplane.model import times
from controlplane.model.fulfilment import Fulfilment, TaskRef

NAME = "records.jsonl"
AGAIN_SECONDS = 1.0
MOST_BYTES = 16 << 20
MOST_BYTES_IN_ALL = 1 << 30
KEPT_SECONDS = 86_400.0
_LATELY_BYTES = 1 << 20
log = structlog.get_logger()


class Subject(msgspec.Struct, frozen=True):
    """Whom a record is about. Its encoding without the braces is what a shim puts into its own records."""

    order: str
    job: str
    index: int
    attempt: int
    fulfilment: str
    target: str
    holds: tuple[str, ...]

    @property
    def ref(self) -> TaskRef:
        return TaskRef(job=self.job, index=self.index, attempt=self.attempt)


class _Started(msgspec.Struct, frozen=True):
    event: str
    order: str
    job: str
    index: int
    attempt: int


def subject_of(fulfilment: Fulfilment, task: TaskRef) -> Subject:
    return Subject(
        fulfilment.order, task.job, task.index, task.attempt, fulfilment.id, fulfilment.target, fulfilment.holds
    )


def inside(subject: Subject) -> str:
    return msgspec.json.encode(subject).decode()[1:-1]


class Records:
    def __init__(self, folder: Path, *, boot: str, clock: Clock) -> None:
        self._path = folder / NAME
        self._boot = boot
        self._clock = clock
        self._torn = False
        self._late: deque[bytes] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._file = self._open()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        os.close(self._file)

    def append(self, event: str, subject: Subject, *, pid: int, exit_code: int | None = None) -> None:
        """Raises OSError when the line is not in the file: then what it tells of must not happen."""
        self._write(self._line(event, subject, pid, exit_code))

    def append_later(self, event: str, subject: Subject, *, pid: int, exit_code: int | None = None) -> None:
        """Of what has happened already: the line is written now, or again and again until it is. Needs the loop."""
        self._late.append(self._line(event, subject, pid, exit_code))
        self._write_late()

    def last_started(self) -> Iterator[tuple[str, TaskRef]]:
        """(order, task) of what was started lately, as far as the end of the file tells."""
        with self._path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LATELY_BYTES))
            lines = file.read(_LATELY_BYTES).splitlines()
        for line in lines:
            try:
                started = msgspec.json.decode(line, type=_Started)
            except msgspec.DecodeError:
                continue
            if started.event == "started":
                yield started.order, TaskRef(job=started.job, index=started.index, attempt=started.attempt)

    def trim(self) -> None:
        """Puts a large file aside, and removes those that nobody needs any more."""
        try:
            if self._path.stat().st_size >= MOST_BYTES:
                self._rotate()
            self._remove_old()
        except OSError as error:
            log.warning("the records cannot be trimmed", file=str(self._path), error=str(error))

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _line(self, event: str, subject: Subject, pid: int, exit_code: int | None) -> bytes:
        moment = {
            "pid": pid,
            "monotonic": round(self._clock.monotonic(), 6),
            "boot": self._boot,
            "time": times.show(self._clock.wall()),
        }
        if exit_code is not None:
            moment["exit_code"] = exit_code
        return msgspec.json.encode({"event": event, **msgspec.to_builtins(subject), **moment}) + b"\n"

    def _write(self, line: bytes) -> None:
        """One write for one line: lines of several writers never mix. A part of a line is ended before the next."""
        whole = b"\n" + line if self._torn else line
        written = os.write(self._file, whole)
        self._torn = written < len(whole)
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def _write_late(self) -> None:
        self._timer = None
        while self._late:
            try:
                self._write(self._late[0])
            except OSError as error:
                log.warning("a record cannot be written yet", file=str(self._path), error=str(error))
                self._timer = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._write_late)
                return
            self._late.popleft()

    def _rotate(self) -> None:
        numbers = [int(path.name.split(".")[1]) for path in self._older()]
        os.rename(self._path, self._path.with_name(f"records.{max(numbers, default=0) + 1:08d}.jsonl"))
        before, self._file = self._file, self._open()
        os.close(before)

    def _remove_old(self) -> None:
        left = MOST_BYTES_IN_ALL
        oldest = self._clock.wall().timestamp() - KEPT_SECONDS
        for path in reversed(self._older()):
            found = path.stat()
            left -= found.st_size
            if left < 0 or found.st_mtime < oldest:
                path.unlink()

    def _older(self) -> list[Path]:
        """The oldest first."""
        return sorted(path for path in self._path.parent.glob("records.*.jsonl") if path.name.split(".")[1].isdigit())
