"""Stopping the commands of tasks. They are found through their shims: those run beside the joblets, in sessions of
their own, and name the joblet's folder as their last argument. Processes as such are the business of `aio`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from controlplane.aio.processes import (
    GRACE_SECONDS,
    Process,
    arguments_of,
    descendants,
    is_own,
    of,
    pids,
    stop,
    wait_gone,
)

__all__ = ["GRACE_SECONDS", "Process", "descendants", "of", "stop", "stop_commands", "wait_gone"]

_SHIMS = frozenset({"shim.py", "shim.pyc"})


def stop_commands(joblets: Path) -> int:
    """Stops every command that a joblet under this folder started; how many there were.

    The shims are frozen first, so that none of them records a kill by us as the command's own end: the next joblet
    finds an attempt that was lost, and it is tried again.
    """
    # What still makes shims for a joblet that is gone would make some more.
    nurseries = _shims(joblets, nurseries=True)
    for nursery in nurseries:
        nursery.send(signal.SIGKILL)
    wait_gone(nurseries, GRACE_SECONDS)
    shims = _shims(joblets, nurseries=False)
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


def _shims(joblets: Path, *, nurseries: bool) -> list[Process]:
    found = []
    for pid in pids():
        arguments = arguments_of(pid)
        is_shim = any(os.path.basename(argument) in _SHIMS for argument in arguments[:-1])
        if not is_shim or Path(arguments[-1]).parent != joblets or not is_own(pid):
            continue
        if (set(arguments[-2]) == {"-"}) == nurseries:
            found.append(pid)
    return [process for process in map(of, found) if process is not None]
