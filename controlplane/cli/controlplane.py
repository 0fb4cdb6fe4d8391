"""`controlplane`: runs things. Each command imports what it runs when it runs it, because starting up is waiting."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

import controlplane
from controlplane.cli import shell, whereabouts
from controlplane.model import quantity
from controlplane.model.errors import Invalid

app = shell.application("controlplane", "Run a control plane, or a part of one.")

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


@app.command()
def joblet(
    target: Annotated[str, typer.Option(metavar="NAME", help="The target it works for; made when unknown.")],
    endpoints: Annotated[str, typer.Option(metavar="A,B", help="Replicas to connect to.")],
    driver: Annotated[str, typer.Option(help="process, simulated or kubernetes.")] = "process",
    capacity: Annotated[str, typer.Option(metavar="cpu=4,memory=8Gi", help="What the target offers.")] = "",
    count: Annotated[int, typer.Option(metavar="N", help="That many simulated targets, NAME-0 and on.")] = 1,
    data_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="What it must know after a restart.")] = None,
    duration: Annotated[str, typer.Option(help="Simulated: how long a task runs.")] = "50ms",
    failure_rate: Annotated[float, typer.Option(help="Simulated: part of the tasks that fail, 0 to 1.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Simulated: same seed, same failures.")] = 0,
) -> None:
    """Run one joblet, or many simulated ones."""
    from controlplane.cli.submitting import user
    from controlplane.joblet import main
    from controlplane.joblet.settings import JobletSettings

    settings = JobletSettings(
        target=target,
        endpoints=whereabouts.parse(endpoints),
        driver=driver,
        capacity=quantities(capacity, "capacity"),
        count=count,
        data_dir=str(data_dir.absolute() if data_dir else _folder(None) / "joblets" / target),
        duration=quantity.parse_duration(duration, "duration"),
        failure_rate=failure_rate,
        seed=seed,
        owner=user(),
        failpoints=os.environ.get("CONTROLPLANE_FAILPOINTS", ""),
    )
    main.run(settings)


def quantities(text: str, field: str) -> dict[str, quantity.Number]:
    """`cpu=4,memory=8Gi` as numbers."""
    found: dict[str, quantity.Number] = {}
    for part in filter(None, text.split(",")):
        name, equals, amount = part.partition("=")
        if not equals or not name.strip():
            raise Invalid(field, f"must read name=amount, several separated by commas, not {part!r}")
        found[name.strip()] = quantity.parse(amount, f"{field}.{name.strip()}")
    return found


def _folder(given: Path | None) -> Path:
    return (given or whereabouts.find(None, None, _without_endpoints()).data_dir or Path()).expanduser().resolve()


def _without_endpoints() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "CONTROLPLANE_ENDPOINTS"}


def main() -> None:
    shell.run(app, "controlplane")


if __name__ == "__main__":
    main()
