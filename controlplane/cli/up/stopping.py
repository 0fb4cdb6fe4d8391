"""`controlplane down`: stops what an `up` on this folder started, whether its supervisor still lives or not."""

from __future__ import annotations

import signal
from pathlib import Path

from controlplane.cli.up import leftovers, processes
from controlplane.cli.up.layout import Layout

# A supervisor stops three groups and the commands one after the other, each with its grace.
_SUPERVISOR_SECONDS = 4 * processes.GRACE_SECONDS + 5.0


def down(folder: Path) -> bool:
    """Whether anything was running."""
    layout = Layout(folder)
    supervisor = leftovers.supervisor(layout)
    if supervisor is not None:
        supervisor.send(signal.SIGTERM)
        if not processes.wait_gone([supervisor], _SUPERVISOR_SECONDS):
            supervisor.send(signal.SIGKILL)
            processes.wait_gone([supervisor], processes.GRACE_SECONDS)
    stopped = leftovers.stop(layout, commands=True)
    layout.forget_processes()
    return supervisor is not None or stopped > 0
