"""Processes by pid and start time, so that a reused pid is never taken for the process that once had it.

Stopping is SIGTERM, a grace, SIGKILL. The commands of tasks are found through their shims: those run beside the
joblets, in sessions of their own, and name the joblet's folder as their last argument.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

GRACE_SECONDS = 5.0
_SHIMS = frozenset({"shim.py", "shim.pyc"})


@dataclass(frozen=True)
class Process:
    """`ticks` is the start time in the kernel's count since boot, `boot` the boot it counts from."""

    pid: int
    ticks: int
    boot: str

    def is_alive(self) -> bool:
        return _ticks(self.pid) == self.ticks and _boot() == self.boot

    def send(self, number: signal.Signals) -> None:
        """Through a descriptor of the very process: between the check and the signal its pid cannot change hands."""
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
    """The process that has this pid now; None when there is none, or only its zombie."""
    ticks = _ticks(pid)
    return None if ticks is None else Process(pid, ticks, _boot())


def stop(processes: Iterable[Process], grace_seconds: float = GRACE_SECONDS) -> None:
    """Returns when all of them are gone."""
    processes = list(processes)
    for process in processes:
        process.send(signal.SIGTERM)
    if not wait_gone(processes, grace_seconds):
        for process in processes:
            process.send(signal.SIGKILL)
        wait_gone(processes, grace_seconds)


def wait_gone(processes: Iterable[Process], seconds: float) -> bool:
    """Whether all of them ended within that time."""
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


def stop_commands(joblets: Path) -> int:
    """Stops every command that a joblet under this folder started; how many there were.

    The shims are frozen first, so that none of them records a kill by us as the command's own end: the next joblet
    finds an attempt that was lost, and it is tried again.
    """
    shims = [shim for shim in map(of, _shims(joblets)) if shim is not None]
    for shim in shims:
        shim.send(signal.SIGSTOP)
    commands = descendants(shims)
    for command in commands:
        command.send(signal.SIGTERM)
    wait_gone(commands, GRACE_SECONDS)
    doomed = [*descendants(shims), *shims]
    for process in doomed:
        process.send(signal.SIGKILL)
    wait_gone(doomed, GRACE_SECONDS)
    return len(shims)


def descendants(roots: Iterable[Process]) -> list[Process]:
    children: dict[int, list[int]] = {}
    for pid in _pids():
        children.setdefault(_stat(pid, 1) or 0, []).append(pid)
    found: list[int] = []
    queue = [process.pid for process in roots if process.is_alive()]
    while queue:
        below = children.get(queue.pop(), [])
        found.extend(below)
        queue.extend(below)
    return [process for process in map(of, found) if process is not None]


def _shims(joblets: Path) -> list[int]:
    found = []
    for pid in _pids():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:
            continue
        is_shim = any(os.path.basename(argument) in _SHIMS for argument in arguments)
        if is_shim and Path(arguments[-1]).parent == joblets:
            found.append(pid)
    return found


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _ticks(pid: int) -> int | None:
    return _stat(pid, 19)


def _stat(pid: int, position: int) -> int | None:
    """A field of /proc/PID/stat, counted behind the command's name; None for what is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[position])
