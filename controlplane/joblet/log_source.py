"""What a reader may ask of an attempt's log, and how a driver gives it: piece by piece, as it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from controlplane.model.fulfilment import TaskRef

STDOUT, STDERR = "stdout", "stderr"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """`stream` is stdout, stderr, or empty for both. `start` is where to begin in each; without it `tail_lines` counts,
    the last lines of each, 0 for all. Followed, a log ends when its attempt has ended, else with what is there now."""

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


class Piece(NamedTuple):
    """The first byte of `data` is at `offset` of the output."""

    stream: str
    offset: int
    data: bytes


class LogSource(Protocol):
    async def read(self, most: int) -> Piece | None:
        """At most so many bytes, at least one; None at the end. NotFound when nothing is kept of it."""

    def close(self) -> None:
        """Nobody reads on."""
