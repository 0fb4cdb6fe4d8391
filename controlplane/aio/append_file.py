"""AppendFile: lines appended to a file, a pipe or stdout by blocking calls, for a thread that may hang in them.

A write that fails half-way leaves a torn line in the file. The next write ends the torn line first and then repeats the
line, so each line that counts as written is whole. Nothing is synced: written lines survive the process, but perhaps
not the machine.
"""

from __future__ import annotations

import os
import select
from collections import deque
from typing import Final

STDOUT: Final = "-"
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_STDOUT_DESCRIPTOR: Final = 1


class AppendFile:
    """Not safe to use from several threads. A new file is readable by its owner only; a link is never followed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._torn = False

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def reopen(self) -> None:
        """Opens the path anew, which also opens the file at first. After an OSError the former file stays in use."""
        if self._path == STDOUT:
            self._descriptor = _STDOUT_DESCRIPTOR
            return
        opened = os.open(self._path, _FLAGS, 0o600)
        self.close()
        self._descriptor = opened

    def append(self, lines: deque[bytes]) -> None:
        """Writes the lines and removes them from `lines`. After an OSError the lines not written are left there."""
        ending = b"\n" if self._torn else b""
        content = memoryview(ending + b"".join(lines))
        written = 0
        try:
            while written < len(content):
                written += self._write(content[written:])
        finally:
            if written:
                self._remove(lines, written - len(ending))

    def close(self) -> None:
        if self._descriptor is not None and self._path != STDOUT:
            os.close(self._descriptor)
        self._descriptor = None
        self._torn = False

    def _write(self, content: memoryview) -> int:
        if self._descriptor is None:
            raise FileNotFoundError(f"{self._path} is not open")
        try:
            return os.write(self._descriptor, content)
        except BlockingIOError:
            # Another process that shares the descriptor of stdout made it non-blocking.
            select.select([], [self._descriptor], [])
            return 0

    def _remove(self, lines: deque[bytes], written: int) -> None:
        while lines and written >= len(lines[0]):
            written -= len(lines.popleft())
        self._torn = written > 0
