"""The archive: finished orders as lines of JSON, on disk before they are deleted from etcd.

Each line is an order: `{"kind":"Archived","id","order","status","ended":[...],"archived","by"}`, the objects as they
stood in etcd. A line is written and synced before the first delete of its order, so that no order is lost; a failover
in between may write an order again, perhaps with fewer attempts: of several lines with the same id the first is whole.
Files are `orders-<day>-<replica>-<number>.jsonl`; a new day or a full file begins the next. A line that a full disk cut
off is ended before the next line begins, so that readers lose no other line: they step over unreadable lines.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog

from controlplane.aio.clock import Clock
from controlplane.aio.group_commit import GroupCommit
from controlplane.cache.snapshot import Entry
from controlplane.model import times
from controlplane.model.errors import Unavailable

log = structlog.get_logger(__name__)

# Lines are made of the stored bytes, without decoding objects.
Stored = Entry[Any]

_MOST_LINES = 1000
_GATHER_SECONDS = 0.02


class Archive:
    """The writer of the folder in a process. `why` says why writing fails, and is empty while writing works."""

    def __init__(self, folder: Path, replica: str, clock: Clock, *, full_bytes: int) -> None:
        self._folder = folder
        self._replica = "".join(letter if letter.isalnum() or letter in ".-_" else "_" for letter in replica)
        self._clock = clock
        self._full_bytes = full_bytes
        self._lines: GroupCommit[bytes, None] = GroupCommit(
            self._flush, lambda lines: min(len(lines), _MOST_LINES), gather_seconds=_GATHER_SECONDS, in_flight=1
        )
        self.why = ""

    async def keep(self, identity: str, order: Stored | None, status: Stored | None, ended: Sequence[Stored]) -> None:
        """Returns when the order is on disk; Unavailable when writing fails."""
        now = times.show(self._clock.wall())
        await self._lines.submit(line_of(identity, order, status, ended, now=now, by=self._replica))

    async def _flush(self, lines: list[bytes]) -> Sequence[None]:
        day = times.show(self._clock.wall())[:10]
        try:
            await asyncio.to_thread(lambda: append(self._place(day), b"".join(lines)))
        except OSError as error:
            if not self.why:
                log.warning(
                    "the archive cannot be written: finished orders stay", folder=str(self._folder), error=str(error)
                )
            self.why = f"{self._folder}: {error.strerror or error}"
            raise Unavailable(f"the archive cannot be written: {self.why}") from None
        if self.why:
            log.info("the archive can be written again", folder=str(self._folder))
        self.why = ""
        return [None] * len(lines)

    def _place(self, day: str) -> Path:
        """The day's newest file, or the next when that file is full."""
        front = f"orders-{day}-{self._replica}-"
        numbers = [
            int(number)
            for path in self._folder.glob(f"{front}*.jsonl")
            if (number := path.name.removeprefix(front).removesuffix(".jsonl")).isdecimal()
        ]
        newest = max(numbers, default=1)
        path = self._folder / f"{front}{newest}.jsonl"
        if path.exists() and path.stat().st_size >= self._full_bytes:
            path = self._folder / f"{front}{newest + 1}.jsonl"
        return path


def line_of(
    identity: str, order: Stored | None, status: Stored | None, ended: Sequence[Stored], *, now: str, by: str
) -> bytes:
    """Values that are no JSON are kept as text: an archive throws no value away."""
    line = {
        "kind": "Archived",
        "id": identity,
        "order": _value(order),
        "status": _value(status),
        "ended": [_value(entry) for entry in ended],
        "archived": now,
        "by": by,
    }
    return msgspec.json.encode(line) + b"\n"


def _value(entry: Stored | None) -> Any:
    if entry is None:
        return None
    try:
        return msgspec.json.decode(entry.stored.value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return entry.stored.value.decode(errors="replace")


def append(path: Path, lines: bytes) -> None:
    """On disk when it returns, including the file's name. A half-written line is ended by the next append."""
    new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        left = memoryview(lines)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if new:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
