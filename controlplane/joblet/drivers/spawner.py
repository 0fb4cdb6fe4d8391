"""Spawns shims: quickly, detached from the joblet, with no signal lost and nothing inherited.

Starting an interpreter takes longer than all else about starting a command, so one shim is kept ready beforehand: it
waits on its stdin for what to run, and goes away by itself when the joblet is gone. Whoever does not find one ready,
or has more to tell than a pipe takes at once, gets a shim of its own.
"""

from __future__ import annotations

import marshal
import os
import py_compile
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_SHIM = Path(__file__).with_name("shim.py")
# A pipe holds 64 KiB; less is written at once, so that a kill in between leaves all of it or nothing.
_MOST_TOLD = 32 << 10
# Stands in the command line of a spare shim for the folder of its attempt, which is written over it.
_ROOM = 160


class _Spare(NamedTuple):
    pid: int
    tell: int
    heard: int
    room: int


class Spawner:
    def __init__(self, data: Path, environment: Mapping[str, str]) -> None:
        self._data = str(data)
        self._environment = dict(environment)
        self._spare: _Spare | None = None
        self._useless: list[int] = []
        # Compiled once: the interpreter would do it again for every command.
        self._shim = str(data / "shim.pyc")
        py_compile.compile(str(_SHIM), cfile=self._shim, doraise=True)

    def spawn(self, run: Path, told: Mapping[str, object]) -> tuple[int, int]:
        """The shim's process identifier, and a descriptor on which it says a line when the command runs."""
        content = marshal.dumps({**told, "folder": str(run)})
        spare = self._spare
        if spare is not None and len(content) <= _MOST_TOLD and len(os.fsencode(run)) <= spare.room:
            self._spare = None
            if _tell(spare.tell, content):
                return spare.pid, spare.heard
            os.close(spare.heard)
            self._useless.append(spare.pid)
        return self._spawn_for(run, content)

    def keep_ready(self) -> None:
        """Makes a spare shim when there is none."""
        self._useless = [pid for pid in self._useless if not _is_over(pid)]
        if self._spare is not None:
            return
        room = len(os.fsencode(self._data)) + _ROOM
        stdin, tell = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(tell, False)
        heard, stdout = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            pid = self._spawn("-" * room, stdin, stdout, os.devnull)
            self._spare = _Spare(pid, tell, heard, room)
        except OSError:
            os.close(tell)
            os.close(heard)
            raise
        finally:
            os.close(stdin)
            os.close(stdout)

    def close(self) -> None:
        """The spare shim hears that nothing comes any more, and goes."""
        if self._spare is not None:
            os.close(self._spare.tell)
            os.close(self._spare.heard)
            self._spare = None

    def _spawn_for(self, run: Path, content: bytes) -> tuple[int, int]:
        # Unlike a pipe, memory takes any size at once.
        stdin = os.memfd_create("told", os.MFD_CLOEXEC)
        heard, stdout = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.write(stdin, content)
            os.lseek(stdin, 0, os.SEEK_SET)
            return self._spawn(str(run), stdin, stdout, str(run / "shim.log")), heard
        except OSError:
            os.close(heard)
            raise
        finally:
            os.close(stdin)
            os.close(stdout)

    def _spawn(self, run: str, stdin: int, stdout: int, log: str) -> int:
        stderr = (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return os.posix_spawn(
            sys.executable,
            # The source is named for those who look at processes; the shim itself does not need it.
            [sys.executable, "-I", "-S", self._shim, str(_SHIM), run, self._data],
            self._environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, stdout, 1), stderr],
            setsid=True,
            # Blocked from its first moment, so that a stop is never lost while the shim begins.
            setsigmask=[signal.SIGTERM, signal.SIGCHLD],
        )


def _tell(pipe: int, content: bytes) -> bool:
    """Whether all of it went; of a part the shim makes nothing."""
    try:
        return os.write(pipe, content) == len(content)
    except (BrokenPipeError, BlockingIOError):
        return False
    finally:
        os.close(pipe)


def _is_over(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
