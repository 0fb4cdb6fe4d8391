"""DIR/records.jsonl: what was really started and ended on this machine, one line each, only ever appended.

`cpctl verify` reads it to check that no attempt was started twice and that holders of a unique resource never
overlapped. So "started" is written before the start, and "ended" only when nothing of the attempt is left.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from controlplane.aio.clock import Clock
from controlplane.model import times
from controlplane.model.fulfilment import Fulfilment, TaskRef

NAME = "records.jsonl"


class Subject(msgspec.Struct, frozen=True):
    """Whom a record is about. Its encoding without the braces is what a shim puts into its own records."""

    order: str
    job: str
    index: int
    attempt: int
    fulfilment: str
    target: str
    holds: tuple[str, ...]


def subject_of(fulfilment: Fulfilment, task: TaskRef) -> Subject:
    return Subject(
        fulfilment.order, task.job, task.index, task.attempt, fulfilment.id, fulfilment.target, fulfilment.holds
    )


def inside(subject: Subject) -> str:
    return msgspec.json.encode(subject).decode()[1:-1]


class Records:
    def __init__(self, folder: Path, *, boot: str, clock: Clock) -> None:
        self._file = os.open(folder / NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._boot = boot
        self._clock = clock

    def close(self) -> None:
        os.close(self._file)

    def append(self, event: str, subject: Subject, *, pid: int, exit_code: int | None = None) -> None:
        """One write for one line: lines of several writers never mix."""
        moment = {
            "pid": pid,
            "monotonic": round(self._clock.monotonic(), 6),
            "boot": self._boot,
            "time": times.show(self._clock.wall()),
        }
        if exit_code is not None:
            moment["exit_code"] = exit_code
        line = {"event": event, **msgspec.to_builtins(subject), **moment}
        os.write(self._file, msgspec.json.encode(line) + b"\n")
