"""`controlplane`: runs a control plane. `up` and `down` are here, `replica` and `joblet` in `serve_command`.

Each command imports its implementation when it runs, which keeps the start of every other command short.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

import controlplane
from controlplane.cli import certs_command, reseal_command, serve_command, shell
from controlplane.standalone.endpoints import find_endpoints

app = shell.application("controlplane", "Run a control plane, or a part of one.")
serve_command.register(app)
reseal_command.register(app)
certs_command.register(app)

_DIR = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Data folder [env CONTROLPLANE_DATA_DIR].")
]


@app.command()
def up(
    replicas: Annotated[int, typer.Option(min=1, max=5, help="Number of replicas.")] = 3,
    targets: Annotated[int, typer.Option(min=0, max=100, help="Number of process targets.")] = 2,
    data_dir: _DIR = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when the control plane is ready.")] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Ask nobody for credentials: for trying things out on loopback.")
    ] = False,
    tls: Annotated[
        bool, typer.Option("--tls", help="Encrypt all connections, those to etcd too; a used folder stays as it is.")
    ] = False,
    behind: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> int:
    """Run an embedded control plane: etcd, replicas and joblets. Restarts processes that die."""
    from controlplane.standalone import launch
    from controlplane.standalone.process_plan import UpOptions

    options, folder = UpOptions(replicas, targets, insecure, tls), _folder(data_dir)
    if behind is not None:
        launch.behind(folder, options, behind)
    elif detach:
        return launch.detached(folder, options)
    else:
        launch.foreground(folder, options)
    return shell.DONE


@app.command()
def down(data_dir: _DIR = None) -> None:
    """Stop all processes of `up`, with the commands of tasks. Keeps the folder."""
    from controlplane.standalone import launch, recorded_processes
    from controlplane.standalone.layout import Layout

    folder = _folder(data_dir)
    launch.say(f"stopped {folder}" if recorded_processes.stop_all(Layout(folder)) else f"nothing runs from {folder}")


@app.command()
def bootstrap(
    etcd: Annotated[str, typer.Option(metavar="URLS", help="URLs of etcd, separated by commas.")],
    force: Annotated[bool, typer.Option("--force", help="Also when there are administrators already.")] = False,
    etcd_ca: Annotated[str, typer.Option(metavar="FILE", help="CA certificate of etcd.")] = "",
    etcd_cert: Annotated[str, typer.Option(metavar="FILE", help="Client certificate for etcd.")] = "",
    etcd_key: Annotated[str, typer.Option(metavar="FILE", help="Key of --etcd-cert.")] = "",
) -> None:
    """Print the token of a first administrator: for a plane that `up` does not run."""
    from controlplane.aio.clock import SystemClock, chance
    from controlplane.standalone import first_access
    from controlplane.store.channel import EtcdOptions
    from controlplane.store.kv import Store

    async def make() -> str:
        urls = tuple(url.strip() for url in etcd.split(",") if url.strip())
        store = Store(EtcdOptions(urls, etcd_ca, etcd_cert, etcd_key), SystemClock())
        try:
            return await first_access.first_administrator(store, SystemClock(), chance, force=force)
        finally:
            await store.close()

    print(asyncio.run(make()))


@app.command()
def version() -> None:
    """Show the version."""
    print(controlplane.__version__)


def _folder(given: Path | None) -> Path:
    return (given or find_endpoints(None, None, _without_endpoints()).data_dir or Path()).expanduser().resolve()


def _without_endpoints() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "CONTROLPLANE_ENDPOINTS"}


def main() -> None:
    shell.run(app, "controlplane")


if __name__ == "__main__":
    main()
