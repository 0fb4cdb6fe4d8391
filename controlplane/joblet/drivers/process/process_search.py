"""Finds processes that this joblet did not spawn: shims of earlier joblets, and the rest of killed shims' commands.

A shim is found by the evidence in its attempt's folder (pid and start time). A command may remove that evidence; then
the shim is found by its stdin, a memory file that is named after the attempt and that no other process can change.
Every process that runs the shim program names the folder of its joblet as its last argument.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from controlplane.aio import processes
from controlplane.joblet.task_files import is_exhausted

_PROC = Path("/proc")
_SHIM_PROGRAMS = frozenset({"shim.py", "shim.pyc"})
# The kernel takes no longer name of a memory file.
_MOST_NAME_BYTES = 249


def start_ticks(pid: int) -> int:
    """When the process started, in the kernel's own count; 0 when it is gone."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError as error:
        _raise_when_exhausted(error)
        return 0
    return int(stat.rpartition(b")")[2].split()[19])


def open_process(pid: int, ticks: int) -> int | None:
    """A descriptor of the very process that started then; None when it is gone, whichever process has its pid now.

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


def is_shim(pid: int) -> bool:
    """Whether the process runs the shim program, as a shim or as a fork server."""
    return _names_shim(processes.arguments_of(pid))


def joblet_folder_of(pid: int) -> Path | None:
    """The folder of the joblet of a process that runs the shim program as this user; None for all other processes."""
    arguments = processes.arguments_of(pid)
    return Path(arguments[-1]) if _names_shim(arguments) and processes.is_own(pid) else None


def _names_shim(arguments: Sequence[str]) -> bool:
    return any(os.path.basename(argument) in _SHIM_PROGRAMS for argument in arguments[:-1])


def memory_file_name(run: Path) -> bytes:
    """The name of the memory file that is the stdin of the shim of an attempt."""
    return os.fsencode(run.name)[:_MOST_NAME_BYTES]


def open_shim(run: Path) -> int | None:
    """A descriptor of the shim of the attempt in this folder, found by its stdin; None when there is none.

    Raises OSError when this process lacks what it takes to find out.
    """
    stdin = b"/memfd:" + memory_file_name(run) + b" (deleted)"
    for pid in processes.pids():
        if joblet_folder_of(pid) != run.parent.parent:
            continue
        try:
            if os.readlink(os.fsencode(_PROC / str(pid) / "fd" / "0")) == stdin:
                return os.pidfd_open(pid)
        except OSError as error:
            _raise_when_exhausted(error)
    return None


def kill_marked(variable: str) -> int:
    """Kills every process with this variable in its environment; the number of them, and 0 means certainly none."""
    mark = variable.encode()
    killed = 0
    for entry in os.scandir(_PROC):
        if entry.name.isdigit() and _carries(entry.path, mark):
            killed += 1
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(entry.name), signal.SIGKILL)
    return killed


def kill_group_members(gid: int) -> int:
    """Kills every process whose real group this is; the number of them, and 0 means certainly none."""
    killed = 0
    for pid in processes.pids():
        if _group_of(pid) == gid:
            killed += 1
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    return killed


def _group_of(pid: int) -> int:
    """The real group of the process; -1 when it is gone, or a zombie, which nothing can kill."""
    try:
        status = (_PROC / str(pid) / "status").read_bytes()
    except OSError as error:
        _raise_when_exhausted(error)
        return -1
    fields = dict(line.split(b":", 1) for line in status.splitlines() if b":" in line)
    if fields.get(b"State", b"").split()[:1] in ([b"Z"], [b"X"]):
        return -1
    return int(fields[b"Gid"].split()[0]) if b"Gid" in fields else -1


def _carries(path: str, mark: bytes) -> bool:
    try:
        with open(f"{path}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError as error:
        _raise_when_exhausted(error)
        return False


def _raise_when_exhausted(error: OSError) -> None:
    """A process that cannot be seen for want of descriptors may well be there."""
    if is_exhausted(error.errno):
        raise error
