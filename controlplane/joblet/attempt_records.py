"""DIR/records.jsonl: the starts and ends of attempts on this machine, a line each, only ever appended.

`cpctl verify` reads the records to check that no attempt was started twice and that holders of a unique resource never
overlapped. So "started" is written before the start, and "ended" only when no process of the attempt is left.

A large file becomes DIR/records.<number>.jsonl and is kept for a day after its last line, which is longer than etcd's
history by default; the size of all files together is bounded.
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
log = structlog.get_logger(__name__)


class AttemptIdentity(msgspec.Struct, frozen=True):
    """The attempt that a record is about. A shim puts its encoding without the braces into its own records."""

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


def identity_of(fulfilment: Fulfilment, task: TaskRef) -> AttemptIdentity:
    return AttemptIdentity(
        fulfilment.order, task.job, task.index, task.attempt, fulfilment.id, fulfilment.target, fulfilment.holds
    )


def json_fields(identity: AttemptIdentity) -> str:
    return msgspec.json.encode(identity).decode()[1:-1]


class AttemptRecords:
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

    def append(self, event: str, identity: AttemptIdentity, *, pid: int, exit_code: int | None = None) -> None:
        """Raises OSError when the line is not in the file: the recorded event must not happen then."""
        self._write(self._line(event, identity, pid, exit_code))

    def append_later(self, event: str, identity: AttemptIdentity, *, pid: int, exit_code: int | None = None) -> None:
        """Records an event that has happened already: the line is retried until it is written. Needs the loop."""
        self._late.append(self._line(event, identity, pid, exit_code))
        self._write_late()

    def last_started(self) -> Iterator[tuple[str, TaskRef]]:
        """(order, task) of the attempts that the end of the file shows as started."""
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
        """Rotates a large file, and removes files that are too old or too many."""
        try:
            if self._path.stat().st_size >= MOST_BYTES:
                self._rotate()
            self._remove_old()
        except OSError as error:
            log.warning("the records cannot be trimmed", file=str(self._path), error=str(error))

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _line(self, event: str, identity: AttemptIdentity, pid: int, exit_code: int | None) -> bytes:
        moment = {
            "pid": pid,
            "monotonic": round(self._clock.monotonic(), 6),
            "boot": self._boot,
            "time": times.show(self._clock.wall()),
        }
        if exit_code is not None:
            moment["exit_code"] = exit_code
        return msgspec.json.encode({"event": event, **msgspec.to_builtins(identity), **moment}) + b"\n"

    def _write(self, line: bytes) -> None:
        """One write for one line, so that lines of several writers never mix. The next line ends a torn one first."""
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
            status = path.stat()
            left -= status.st_size
            if left < 0 or status.st_mtime < oldest:
                path.unlink()

    def _older(self) -> list[Path]:
        """The oldest first."""
        return sorted(path for path in self._path.parent.glob("records.*.jsonl") if path.name.split(".")[1].isdigit())
