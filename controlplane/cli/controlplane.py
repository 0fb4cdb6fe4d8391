"""`controlplane`: runs things. `up` and `down` are here, the single parts in `serving`.

Each command imports what it runs when it runs it, because starting up is waiting.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

import controlplane
from controlplane.cli import serving, shell, whereabouts

app = shell.application("controlplane", "Run a control plane, or a part of one.")
serving.register(app)

_DIR = Annotated[Path | None, typer.Option("--data-dir", metavar="DIR", help="Folder [env CONTROLPLANE_DATA_DIR].")]


@app.command()
def up(
    replicas: Annotated[int, typer.Option(min=1, max=5, help="How many replicas.")] = 3,
    targets: Annotated[int, typer.Option(min=0, max=100, help="How many process targets.")] = 2,
    data_dir: _DIR = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when all is ready.")] = False,
    behind: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> int:
    """Run an embedded control plane: etcd, replicas, joblets. Starts again what dies."""
    from controlplane.cli.up import starting

    size, folder = starting.Size(replicas, targets), _folder(data_dir)
    if behind is not None:
        starting.behind(folder, size, behind)
    elif detach:
        return starting.detached(folder, size)
    else:
        starting.foreground(folder, size)
    return shell.DONE


@app.command()
def down(data_dir: _DIR = None) -> None:
    """Stop what `up` started, the commands of tasks too. Keeps the folder."""
    from controlplane.cli.up import starting, stopping

    folder = _folder(data_dir)
    starting.say(f"stopped {folder}" if stopping.down(folder) else f"nothing runs from {folder}")


@app.command()
def version() -> None:
    """Show the version."""
    print(controlplane.__version__)


def _folder(given: Path | None) -> Path:
    return (given or whereabouts.find(None, None, _without_endpoints()).data_dir or Path()).expanduser().resolve()


def _without_endpoints() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "CONTROLPLANE_ENDPOINTS"}


def main() -> None:
    shell.run(app, "controlplane")


if __name__ == "__main__":
    main()
