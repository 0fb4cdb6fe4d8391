"""Processes by pid and start time, so that a reused pid is never taken for the earlier process with the same pid.

Stopping is SIGTERM, a grace, SIGKILL.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

GRACE_SECONDS = 5.0
_LOOK_SECONDS = 0.001
_ARGUMENTS_START = 45  # arg_start of /proc/PID/stat
_SET_DUMPABLE = 4  # PR_SET_DUMPABLE of prctl(2)


@dataclass(frozen=True)
class Process:
    """`ticks` is the start time in the kernel's count since boot, `boot` the identity of the boot."""

    pid: int
    ticks: int
    boot: str

    @property
    def started_seconds(self) -> float:
        """The start time in seconds since boot, on CLOCK_BOOTTIME."""
        return self.ticks / os.sysconf("SC_CLK_TCK")

    def is_alive(self) -> bool:
        return _ticks(self.pid) == self.ticks and _boot() == self.boot

    def send(self, number: signal.Signals) -> None:
        """Sends through a pidfd, so that the pid cannot change hands between the check and the signal."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            if self.is_alive():
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            pass
        finally:
            os.close(descriptor)


def of(pid: int) -> Process | None:
    """The process that has the pid now; None without such a process, or for a zombie."""
    ticks = _ticks(pid)
    return None if ticks is None else Process(pid, ticks, _boot())


def stop(processes: Iterable[Process], grace_seconds: float = GRACE_SECONDS) -> None:
    """Stops the processes; returns when all are gone, or after a second grace behind SIGKILL."""
    processes = list(processes)
    for process in processes:
        process.send(signal.SIGTERM)
    if not wait_gone(processes, grace_seconds):
        for process in processes:
            process.send(signal.SIGKILL)
        wait_gone(processes, grace_seconds)


def wait_gone(processes: Iterable[Process], seconds: float) -> bool:
    """Whether all processes ended within the given seconds."""
    give_up = time.monotonic() + seconds
    for process in processes:
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            continue
        try:
            if process.is_alive():
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                if not poll.poll(max(0.0, give_up - time.monotonic()) * 1000):
                    return False
        finally:
            os.close(descriptor)
    return True


def descendants(roots: Iterable[Process]) -> list[Process]:
    children: dict[int, list[int]] = {}
    for pid in pids():
        children.setdefault(_stat(pid, 1) or 0, []).append(pid)
    descending: list[int] = []
    queue = [process.pid for process in roots if process.is_alive()]
    while queue:
        below = children.get(queue.pop(), [])
        descending.extend(below)
        queue.extend(below)
    return [process for process in map(of, descending) if process is not None]


def arguments_of(pid: int) -> list[str]:
    """The command line of a process; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def wait_shown(pid: int, seconds: float) -> None:
    """Returns when the process shows its command line, a moment after its start, or when the process is gone."""
    give_up = time.monotonic() + seconds
    while not arguments_of(pid) and _ticks(pid) is not None and time.monotonic() < give_up:
        time.sleep(_LOOK_SECONDS)


def is_own(pid: int) -> bool:
    """Whether the process runs as the current user, by real and effective user: any user may show any command line.

    The owner of the folder in /proc says less: a process that must not be dumped has a folder owned by root.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    users = next((line.split()[1:3] for line in status.splitlines() if line.startswith("Uid:")), [])
    return users == [str(os.geteuid())] * 2


def keep_memory_private() -> None:
    """Bars other processes of the user from reading the memory, environment and descriptors of the own process."""
    ctypes.CDLL(None, use_errno=True).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def keep_files_private() -> int:
    """New files and folders are for the user of this process alone from now on. Returns the former umask."""
    return os.umask(0o077)


def hide_argument(text: str) -> None:
    """Replaces the argument in the command line that other users see of this process."""
    place = Path("/proc/self/cmdline").read_bytes().find(text.encode())
    start = _stat(os.getpid(), _ARGUMENTS_START)
    if place >= 0 and start:
        ctypes.memset(start + place, ord("x"), len(text.encode()))


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _ticks(pid: int) -> int | None:
    return _stat(pid, 19)


def _stat(pid: int, position: int) -> int | None:
    """A field of /proc/PID/stat, counted behind the command's name; None for a process that is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[position])
