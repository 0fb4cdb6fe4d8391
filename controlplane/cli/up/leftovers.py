"""What `processes.json` still names: found alive by pid and start time, and stopped in order."""

from __future__ import annotations

from controlplane.cli.up import layout as files
from controlplane.cli.up import processes
from controlplane.cli.up.layout import Layout
from controlplane.cli.up.processes import Process


def supervisor(layout: Layout) -> Process | None:
    record = files.read_json(layout.processes_json) or {}
    found = processes.from_json(record.get("supervisor"))
    return found if found is not None and found.is_alive() else None


def parts(layout: Layout) -> dict[str, Process]:
    """The parts that are still alive, by name."""
    record = files.read_json(layout.processes_json) or {}
    found = {name: processes.from_json(value) for name, value in (record.get("parts") or {}).items()}
    return {name: process for name, process in found.items() if process is not None and process.is_alive()}


def stop(layout: Layout, *, commands: bool) -> int:
    """Stops joblets, then commands if asked, then replicas, then etcd; how many processes that were.

    Joblets go first, so that nobody reports the death of a command as its end.
    """
    alive = parts(layout)
    replicas = [process for name, process in alive.items() if name.startswith("replica-")]
    etcd = [process for name, process in alive.items() if name == "etcd"]
    joblets = [process for process in alive.values() if process not in replicas and process not in etcd]
    processes.stop(joblets)
    stopped = processes.stop_commands(layout.joblets) if commands else 0
    processes.stop(replicas)
    processes.stop(etcd)
    return len(alive) + stopped
