"""What `processes.json` still names: found alive by pid and start time, and stopped in order."""

from __future__ import annotations

import msgspec

from controlplane.cli.up import processes
from controlplane.cli.up.layout import Layout
from controlplane.cli.up.processes import Process
from controlplane.providers.local import made_here


class Record(msgspec.Struct, frozen=True):
    """The content of `processes.json`."""

    supervisor: Process | None = None
    parts: dict[str, Process] = {}


def read(layout: Layout) -> Record:
    """What was recorded; nothing when there is no record, or none that can be read."""
    try:
        return msgspec.json.decode(layout.processes_json.read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return Record()


def supervisor(layout: Layout) -> Process | None:
    found = read(layout).supervisor
    return found if found is not None and found.is_alive() else None


def parts(layout: Layout) -> dict[str, Process]:
    """The parts that are still alive, by name."""
    return {name: process for name, process in read(layout).parts.items() if process.is_alive()}


def stop(layout: Layout, *, commands: bool) -> int:
    """Stops joblets, made ones too, then commands if asked, then replicas, then etcd; how many processes that were.

    Joblets go first, so that nobody reports the death of a command as its end.
    """
    alive = parts(layout)
    replicas = [process for name, process in alive.items() if name.startswith("replica-")]
    etcd = [process for name, process in alive.items() if name == "etcd"]
    joblets = [process for process in alive.values() if process not in replicas and process not in etcd]
    made = list(made_here(layout.joblets).values())
    processes.stop([*joblets, *made])
    stopped = processes.stop_commands(layout.joblets) if commands else 0
    processes.stop(replicas)
    # A leader that missed one may have started it again.
    late = list(made_here(layout.joblets).values())
    processes.stop(late)
    processes.stop(etcd)
    return len(alive) + len(made) + len(late) + stopped
