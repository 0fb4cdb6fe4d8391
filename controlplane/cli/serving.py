"""`controlplane replica` and `joblet`: one part each, in the foreground, until SIGTERM or SIGINT.

Their logs go to stderr.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import typing
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.cli import logs, whereabouts
from controlplane.model import quantity
from controlplane.model.errors import Invalid
from controlplane.settings import ReplicaSettings


def register(app: typer.Typer) -> None:
    app.command()(replica)
    app.command()(joblet)


def replica(**given: Any) -> None:
    """Run one replica."""
    from controlplane.aio.processes import keep_memory_private
    from controlplane.replica import run

    # It holds the keys of all secrets, and commands of tasks may run as the same user.
    keep_memory_private()
    given["etcd"] = tuple(url.strip() for url in given["etcd"].split(",") if url.strip())
    settings = ReplicaSettings(**given, failpoints=os.environ.get("CONTROLPLANE_FAILPOINTS", ""))
    logs.to_stderr()
    asyncio.run(run(settings))


def _replica_options() -> list[inspect.Parameter]:
    """An option for every setting of a replica but its failpoints, which come from the environment."""
    known = {
        "etcd": (str, inspect.Parameter.empty, typer.Option(metavar="URLS", help="etcd; several separated by commas.")),
        "id": (str, socket.gethostname(), typer.Option(help="The name it leads under.")),
        "grpc": (str, "127.0.0.1:7101", typer.Option(metavar="H:P", help="Where to serve gRPC.")),
        "http": (str, "127.0.0.1:7201", typer.Option(metavar="H:P", help="Where to serve HTTP.")),
    }
    for name, kind in typing.get_type_hints(ReplicaSettings).items():
        if name not in known and name != "failpoints":
            default = ReplicaSettings.__dataclass_fields__[name].default
            known[name] = (kind, default, typer.Option(rich_help_panel="Tuning"))
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
        for name, (kind, default, option) in known.items()
    ]


replica.__signature__ = inspect.Signature(_replica_options())  # type: ignore[attr-defined]
replica.__annotations__ = {option.name: option.annotation for option in _replica_options()}


def _of_kubernetes(**options: Any) -> Any:
    return typer.Option(rich_help_panel="Kubernetes", **options)


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
    region: Annotated[str, typer.Option(help="Of a target that is made.")] = "",
    labels: Annotated[str, typer.Option(metavar="zone=a,disk=ssd", help="Of a target that is made.")] = "",
    resizable: Annotated[bool, typer.Option("--resizable", help="A target that is made is as large as I say.")] = False,
    nice: Annotated[int, typer.Option(metavar="N", help="How far commands step back for all else here, 0 to 19.")] = 0,
    output_limit: Annotated[
        str, typer.Option(metavar="SIZE", help="Kept of each output of a command; 0: all.")
    ] = "64Mi",
    kubeconfig: Annotated[Path | None, _of_kubernetes(metavar="FILE", help="The cluster; none inside of one.")] = None,
    namespace: Annotated[str, _of_kubernetes(metavar="NS", help="Where the pods go.")] = "",
    pull_secrets: Annotated[str, _of_kubernetes(metavar="A,B", help="For the images of all pods.")] = "",
    security: Annotated[str, _of_kubernetes(help="restricted; baseline lets images run as root.")] = "restricted",
    grace: Annotated[str, _of_kubernetes(help="How long a pod that is stopped may take until it is killed.")] = "30s",
    request_timeout: Annotated[str, _of_kubernetes(help="Of one request to the API.")] = "10s",
    tombstone: Annotated[str, _of_kubernetes(help="How long a pod that ended is kept.")] = "10m",
    start_patience: Annotated[str, _of_kubernetes(help="How long a pod may wait for an image or a node.")] = "5m",
    away: Annotated[str, _of_kubernetes(help="How long the API may be gone before the target falls silent.")] = "10s",
    hosted: Annotated[bool, typer.Option("--hosted", hidden=True, help="Started by a replica.")] = False,
) -> None:
    """Run one joblet, or many simulated ones."""
    from controlplane.cli.submitting import user
    from controlplane.joblet import main
    from controlplane.joblet.settings import ClusterSettings, JobletSettings

    settings = JobletSettings(
        target=target,
        endpoints=whereabouts.parse(endpoints),
        driver=driver,
        capacity=quantities(capacity, "capacity"),
        count=count,
        data_dir=_joblet_folder(data_dir, driver, target),
        duration=quantity.parse_duration(duration, "duration"),
        failure_rate=failure_rate,
        seed=seed,
        owner=user(),
        region=region,
        labels=pairs(labels, "labels"),
        resizable=resizable,
        cluster=ClusterSettings(
            kubeconfig=str(kubeconfig.absolute()) if kubeconfig is not None else "",
            namespace=namespace,
            pull_secrets=tuple(filter(None, pull_secrets.split(","))),
            security=security,
            grace=quantity.parse_duration(grace, "grace"),
            request_timeout=quantity.parse_duration(request_timeout, "request_timeout"),
            tombstone=quantity.parse_duration(tombstone, "tombstone"),
            start_patience=quantity.parse_duration(start_patience, "start_patience"),
            away=quantity.parse_duration(away, "away"),
        ),
        hosted=hosted,
        nice=nice,
        output_limit=quantity.parse(output_limit, "output_limit"),
        failpoints=os.environ.get("CONTROLPLANE_FAILPOINTS", ""),
    )
    logs.to_stderr()
    asyncio.run(main.run(settings))


def quantities(text: str, field: str) -> dict[str, quantity.Number]:
    """`cpu=4,memory=8Gi` as numbers."""
    return {name: quantity.parse(amount, f"{field}.{name}") for name, amount in pairs(text, field).items()}


def pairs(text: str, field: str) -> dict[str, str]:
    """`zone=a,disk=ssd` as texts."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise Invalid(field, f"must read name=value, several separated by commas, not {part!r}")
        found[name.strip()] = value
    return found


def _joblet_folder(given: Path | None, driver: str, target: str) -> str:
    """Commands outlive their joblet, so it always needs a folder; what is simulated does without."""
    if given is not None:
        return str(given.absolute())
    return str(whereabouts.default_dir() / "joblets" / target) if driver != "simulated" else ""
