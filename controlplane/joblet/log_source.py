"""A query for the log of an attempt, and the port by which a driver gives the log: piece by piece, on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from controlplane.model.fulfilment import TaskRef

STDOUT, STDERR = "stdout", "stderr"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """`stream` is stdout, stderr, or empty for both. `start` is the offset to begin at in each stream; without a start,
    `tail_lines` is the number of last lines of each, 0 for all. A followed log ends when its attempt has ended, any
    other log with the bytes that are there now."""

    order: str
    fulfilment: str
    task: TaskRef
    stream: str = ""
    follow: bool = False
    tail_lines: int = 0
    start: tuple[int, int] | None = None

    @property
    def streams(self) -> tuple[str, ...]:
        return (self.stream,) if self.stream else (STDOUT, STDERR)

    def start_of(self, stream: str) -> int | None:
        return self.start[stream == STDERR] if self.start is not None else None


class OutputPiece(NamedTuple):
    """The first byte of `data` is at `offset` of the output."""

    stream: str
    offset: int
    data: bytes


class LogSource(Protocol):
    async def read(self, most: int) -> OutputPiece | None:
        """At most so many bytes, at least one; None at the end. NotFound when no output of the attempt is kept."""

    def close(self) -> None:
        """The reader has gone."""
