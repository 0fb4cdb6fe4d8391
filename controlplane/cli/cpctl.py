"""`cpctl`: asks and tells. Each group of commands is a module with a `register`; this one only names them."""

from __future__ import annotations

from controlplane.cli import (
    backup,
    change,
    creating,
    drill,
    explain,
    get,
    leading,
    plan,
    replay,
    shell,
    status,
    submitting,
    targeting,
    task_logs,
    top,
    verify,
)

GROUPS = (
    submitting,
    creating,
    get,
    task_logs,
    top,
    explain,
    plan,
    change,
    targeting,
    leading,
    status,
    verify,
    replay,
    drill,
    backup,
)


def main() -> None:
    app = shell.application("cpctl", "Ask the control plane, and tell it what to run.")
    for group in GROUPS:
        group.register(app)
    shell.run(app, "cpctl")


if __name__ == "__main__":
    main()
