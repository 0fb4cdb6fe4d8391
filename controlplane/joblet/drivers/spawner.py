"""Spawns shims: quickly, detached from the joblet, with no signal lost and nothing inherited."""

from __future__ import annotations

import marshal
import os
import py_compile
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

_SHIM = Path(__file__).with_name("shim.py")


class Spawner:
    def __init__(self, data: Path, environment: Mapping[str, str]) -> None:
        self._data = str(data)
        self._environment = dict(environment)
        # Compiled once: the interpreter would do it again for every command.
        self._shim = str(data / "shim.pyc")
        py_compile.compile(str(_SHIM), cfile=self._shim, doraise=True)

    def spawn(self, run: Path, told: Mapping[str, object]) -> tuple[int, int]:
        """The shim's process identifier, and a descriptor on which it says a line when the command runs."""
        # Unlike a pipe, memory takes any size at once.
        stdin = os.memfd_create("told", os.MFD_CLOEXEC)
        heard, stdout = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.write(stdin, marshal.dumps(dict(told)))
            os.lseek(stdin, 0, os.SEEK_SET)
            return self._spawn(run, stdin, stdout), heard
        except OSError:
            os.close(heard)
            raise
        finally:
            os.close(stdin)
            os.close(stdout)

    def _spawn(self, run: Path, stdin: int, stdout: int) -> int:
        stderr = (os.POSIX_SPAWN_OPEN, 2, str(run / "shim.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return os.posix_spawn(
            sys.executable,
            # The source is named for those who look at processes; the shim itself does not need it.
            [sys.executable, "-I", "-S", self._shim, str(_SHIM), str(run), self._data],
            self._environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, stdout, 1), stderr],
            setsid=True,
            # Blocked from its first moment, so that a stop is never lost while the shim begins.
            setsigmask=[signal.SIGTERM, signal.SIGCHLD],
        )
