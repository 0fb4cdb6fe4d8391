"""`cpctl`: asks and tells. Each group of commands is a module with a `register`; this one only names them."""

from __future__ import annotations

from controlplane.cli import change, drill, explain, get, leading, plan, replay, shell, submitting, targeting, verify

GROUPS = (submitting, get, explain, plan, change, targeting, leading, verify, replay, drill)


def main() -> None:
    app = shell.application("cpctl", "Ask the control plane, and tell it what to run.")
    for group in GROUPS:
        group.register(app)
    shell.run(app, "cpctl")


if __name__ == "__main__":
    main()
