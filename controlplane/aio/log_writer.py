"""Log lines written to a file descriptor. Writing never fails its caller: a line is lost when the disk is full."""

from __future__ import annotations

import contextlib
import os


class LogWriter:
    """A logger of structlog, and the factory of its named loggers. Each line is a single write."""

    def __init__(self, descriptor: int, name: str = "") -> None:
        self._descriptor = descriptor
        self.name = name

    def __call__(self, name: str = "") -> LogWriter:
        return LogWriter(self._descriptor, name)

    def msg(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._descriptor, line.encode(errors="backslashreplace") + b"\n")

    log = debug = info = warn = warning = error = err = critical = exception = fatal = failure = msg
