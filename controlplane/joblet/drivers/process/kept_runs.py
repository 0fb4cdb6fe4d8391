"""Folders of attempts that are no longer desired: kept as tombstones for a while, then removed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from controlplane.aio.clock import Clock
from controlplane.joblet.drivers.process.rundir import RunDir

TOMBSTONE_SECONDS = 600.0


class KeptRuns:
    """One timer for all kept folders, and none while there are none."""

    def __init__(self, clock: Clock, seconds: float = TOMBSTONE_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        # The time of removal by folder, in this order.
        self._due: dict[Path, float] = {}
        self._emptied: set[Path] = set()

    def add(self, path: Path) -> None:
        if not self._due:
            asyncio.get_running_loop().call_later(self._seconds, self._sweep)
        self._due.setdefault(path, self._clock.monotonic() + self._seconds)

    def remove(self, path: Path) -> None:
        """The attempt is desired again: its folder stays until it is added anew."""
        self._due.pop(path, None)

    def make_room(self) -> None:
        """The disk is full: the working folders of the commands are removed now, their output stays for its time."""
        for path in self._due.keys() - self._emptied:
            self._emptied.add(path)
            asyncio.get_running_loop().run_in_executor(None, _empty, path)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = self._clock.monotonic()
        while self._due:
            path, due = next(iter(self._due.items()))
            if due > now:
                loop.call_later(due - now, self._sweep)
                return
            del self._due[path]
            self._emptied.discard(path)
            loop.run_in_executor(None, _remove, path)


def _empty(path: Path) -> None:
    run = RunDir(path).with_home()
    if run.home is not None:
        run.home.empty()
    else:
        remove_tree(path / "work")


def _remove(path: Path) -> None:
    """The folder that proves the start goes last."""
    run = RunDir(path).with_home()
    if run.home is not None:
        run.home.remove()
    remove_tree(path)


def remove_tree(path: Path) -> None:
    """Removes whatever a command left there: links are not followed, folders without rights get them first."""
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path, onerror=_open_up)
        else:
            os.unlink(path)


def _open_up(again: Callable[[str], object], path: str, _error: object) -> None:
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            again(path)
