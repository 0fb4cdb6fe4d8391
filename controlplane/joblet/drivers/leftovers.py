"""Processes that this joblet did not spawn itself: shims of its earlier lives, and what killed shims left behind."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from controlplane.aio.processes import arguments_of, pids
from controlplane.joblet.task_files import is_exhausted

_PROC = Path("/proc")


def start_ticks(pid: int) -> int:
    """When the process started, in the kernel's own count; 0 when it is gone."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError as error:
        _raise_when_exhausted(error)
        return 0
    return int(stat.rpartition(b")")[2].split()[19])


def open_process(pid: int, ticks: int) -> int | None:
    """A descriptor of the very process that started then; None when it is gone, whoever has its number now.

    Raises OSError when this process lacks what it takes to find out.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        _raise_when_exhausted(error)
        return None
    try:
        same = start_ticks(pid) == ticks
    except OSError:
        os.close(pidfd)
        raise
    if not same:
        os.close(pidfd)
        return None
    return pidfd


def open_shim(run: Path) -> int | None:
    """A descriptor of the shim whose command line names the folder of an attempt; None when there is none of this user.

    Raises OSError when this process lacks what it takes to find out.
    """
    for pid in pids():
        # A shim's folder stands in the room of a longer argument, filled up with empty ones.
        if [argument for argument in arguments_of(pid) if argument][-2:] == [str(run), str(run.parent.parent)]:
            try:
                return os.pidfd_open(pid) if (_PROC / str(pid)).stat().st_uid == os.geteuid() else None
            except OSError as error:
                _raise_when_exhausted(error)
    return None


def kill_marked(variable: str) -> int:
    """Kills every process with this in its environment; how many there were. None left means certainly none."""
    mark = variable.encode()
    found = 0
    for entry in os.scandir(_PROC):
        if entry.name.isdigit() and _carries(entry.path, mark):
            found += 1
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(entry.name), signal.SIGKILL)
    return found


def _carries(path: str, mark: bytes) -> bool:
    try:
        with open(f"{path}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError as error:
        _raise_when_exhausted(error)
        return False


def _raise_when_exhausted(error: OSError) -> None:
    """What cannot be seen for want of descriptors may well be there."""
    if is_exhausted(error.errno):
        raise error
