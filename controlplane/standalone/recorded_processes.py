"""The processes that `processes.json` names: found alive by pid and start time, and stopped in order.

Stopping needs no supervisor, so `down` and the next `up` clean up after a supervisor that was killed.
"""

from __future__ import annotations

import signal

import msgspec

from controlplane.aio import processes
from controlplane.aio.processes import Process
from controlplane.providers.local import made_here
from controlplane.standalone.layout import Layout
from controlplane.standalone.task_commands import stop_commands

# A supervisor stops three groups of processes and the commands of tasks in turn, each with its grace.
_SUPERVISOR_SECONDS = 4 * processes.GRACE_SECONDS + 5.0


class ProcessRecord(msgspec.Struct, frozen=True):
    """The content of `processes.json`."""

    supervisor: Process | None = None
    parts: dict[str, Process] = {}


def read(layout: Layout) -> ProcessRecord:
    """The record; an empty record when the file is missing or cannot be read."""
    try:
        return msgspec.json.decode(layout.processes_json.read_bytes(), type=ProcessRecord)
    except (OSError, msgspec.DecodeError):
        return ProcessRecord()


def supervisor(layout: Layout) -> Process | None:
    process = read(layout).supervisor
    return process if process is not None and process.is_alive() else None


def parts(layout: Layout) -> dict[str, Process]:
    """The parts of the control plane that are still alive, by name."""
    return {name: process for name, process in read(layout).parts.items() if process.is_alive()}


def stop_all(layout: Layout) -> bool:
    """Stops every process that an `up` of this folder started, its supervisor first; whether any was running."""
    process = supervisor(layout)
    if process is not None:
        process.send(signal.SIGTERM)
        if not processes.wait_gone([process], _SUPERVISOR_SECONDS):
            process.send(signal.SIGKILL)
            processes.wait_gone([process], processes.GRACE_SECONDS)
    stopped = stop(layout, commands=True)
    layout.forget_processes()
    return process is not None or stopped > 0


def stop(layout: Layout, *, commands: bool) -> int:
    """Stops joblets, those of provider `local` too, then commands if asked, then replicas, then etcd.

    Returns how many processes were stopped. Joblets go first, so that no joblet reports a killed command as ended.
    """
    alive = parts(layout)
    replicas = [process for name, process in alive.items() if name.startswith("replica-")]
    etcd = [process for name, process in alive.items() if name == "etcd"]
    joblets = [process for process in alive.values() if process not in replicas and process not in etcd]
    provided = list(made_here(layout.joblets).values())
    processes.stop([*joblets, *provided])
    stopped = stop_commands(layout.joblets) if commands else 0
    processes.stop(replicas)
    # A leader that missed a joblet of its provider may have started that joblet again.
    late = list(made_here(layout.joblets).values())
    processes.stop(late)
    processes.stop(etcd)
    return len(alive) + len(provided) + len(late) + stopped
