"""Whole lines from pieces of several outputs, so that lines of different tasks never mix. Pure."""

from __future__ import annotations

# A longer line is shown in parts.
MOST_BYTES = 1 << 20


class LineBuffer:
    """The unfinished lines of the attempts of a task."""

    def __init__(self) -> None:
        self._unfinished: dict[tuple[int, str], bytes] = {}

    def take(self, attempt: int, stream: str, data: bytes) -> list[bytes]:
        """The lines that this piece completes, without line ends."""
        *lines, rest = (self._unfinished.pop((attempt, stream), b"") + data).split(b"\n")
        if len(rest) >= MOST_BYTES:
            lines, rest = [*lines, rest], b""
        if rest:
            self._unfinished[attempt, stream] = rest
        return lines

    def rest(self) -> list[tuple[int, str, bytes]]:
        """The unfinished lines, as (attempt, stream, line)."""
        return [(attempt, stream, line) for (attempt, stream), line in self._unfinished.items()]
