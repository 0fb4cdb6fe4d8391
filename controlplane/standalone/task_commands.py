"""Stopping the commands of tasks that joblets below one folder started.

Commands are found through their shims: a shim runs beside its joblet, in a session of its own. Every process of the
shim program names the joblet's folder as its last argument; the joblet's `fork_server.json` tells the fork server from
shims.
"""

from __future__ import annotations

import signal
from pathlib import Path

from controlplane.aio import processes
from controlplane.aio.processes import GRACE_SECONDS, Process
from controlplane.joblet.drivers.process.process_search import joblet_folder_of
from controlplane.joblet.drivers.process.spawner import FORK_SERVER, fork_server_of


def stop_commands(joblets: Path) -> int:
    """Stops every command that a joblet below this folder started; returns how many shims there were.

    The shims are frozen first, so that no shim records the kill as the command's own end: the next joblet finds a lost
    attempt, and the task is tried again.
    """
    # The fork server of a joblet that is gone would start more shims.
    folders = sorted(file.parent for file in joblets.glob(f"*/{FORK_SERVER}"))
    fork_servers = [server for server in map(fork_server_of, folders) if server is not None]
    for fork_server in fork_servers:
        fork_server.send(signal.SIGKILL)
    processes.wait_gone(fork_servers, GRACE_SECONDS)
    shims = _freeze_shims(joblets)
    commands = [process for process in processes.descendants(shims) if process not in shims]
    for command in commands:
        command.send(signal.SIGTERM)
    processes.wait_gone(commands, GRACE_SECONDS)
    remaining = [*processes.descendants(shims), *shims]
    for process in remaining:
        process.send(signal.SIGKILL)
    processes.wait_gone(remaining, GRACE_SECONDS)
    return len(shims)


def _freeze_shims(joblets: Path) -> set[Process]:
    """Looks until there are no others: a fork server whose file could not be written is frozen like a shim."""
    frozen: set[Process] = set()
    while more := _shims(joblets) - frozen:
        for shim in more:
            shim.send(signal.SIGSTOP)
        frozen |= more
    return frozen


def _shims(joblets: Path) -> set[Process]:
    pids = [pid for pid in processes.pids() if (folder := joblet_folder_of(pid)) and folder.parent == joblets]
    return {process for process in map(processes.of, pids) if process is not None}
