"""Pieces of several outputs made into whole lines, so that lines of different tasks never mix. Pure."""

from __future__ import annotations

# A line that goes on for longer than this is shown in parts.
MOST_BYTES = 1 << 20


class Lines:
    """Of the attempts of one task."""

    def __init__(self) -> None:
        self._unfinished: dict[tuple[int, str], bytes] = {}

    def take(self, attempt: int, stream: str, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their ends."""
        *lines, rest = (self._unfinished.pop((attempt, stream), b"") + data).split(b"\n")
        if len(rest) >= MOST_BYTES:
            lines, rest = [*lines, rest], b""
        if rest:
            self._unfinished[attempt, stream] = rest
        return lines

    def rest(self) -> list[tuple[int, str, bytes]]:
        """What was never finished, as (attempt, stream, line)."""
        return [(attempt, stream, line) for (attempt, stream), line in self._unfinished.items()]
