"""Where log lines go: a descriptor. Writing never fails its caller: a line that the disk does not take is lost."""

from __future__ import annotations

import contextlib
import os


class LogWriter:
    """A logger of structlog, and its own factory. Each line is one write."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, *_names: object) -> LogWriter:
        return self

    def msg(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._descriptor, line.encode(errors="backslashreplace") + b"\n")

    log = debug = info = warn = warning = error = err = critical = exception = fatal = failure = msg
