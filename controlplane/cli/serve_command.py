"""`controlplane replica` and `joblet`: a single process in the foreground, until SIGTERM or SIGINT; logs go to stderr.

The options of `replica` are made from the fields of ReplicaSettings, so that a setting and its help have one place.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import sys
import typing
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.aio.processes import hide_argument
from controlplane.cli import log_setup
from controlplane.cli.shell import user
from controlplane.model import quantity
from controlplane.model.driver_traits import traits_of
from controlplane.model.errors import Invalid, Unavailable
from controlplane.replica_settings import HELP, ReplicaSettings
from controlplane.standalone.endpoints import default_data_dir, find_endpoints, find_token, parse_endpoints


def register(app: typer.Typer) -> None:
    app.command()(replica)
    app.command()(joblet)


def replica(**given: Any) -> None:
    """Run one replica."""
    from controlplane.aio.processes import keep_memory_private
    from controlplane.replica import run

    # A replica holds the keys of all secrets, and commands of tasks may run as the same user.
    keep_memory_private()
    given["etcd"] = tuple(url.strip() for url in given["etcd"].split(",") if url.strip())
    settings = ReplicaSettings(**given, failpoints=os.environ.get("CONTROLPLANE_FAILPOINTS", ""))
    log_setup.log_to(sys.stderr.fileno())
    asyncio.run(run(settings))


# The defaults that a command has and a program that builds settings has not.
_REPLICA_DEFAULTS = {"id": socket.gethostname(), "grpc": "127.0.0.1:7101", "http": "127.0.0.1:7201"}
_METAVARS = {
    "etcd": "URLS",
    **dict.fromkeys(("grpc", "http", "pulse", "grpc_advertise", "http_advertise", "pulse_advertise"), "H:P"),
    **dict.fromkeys(("tls_cert", "tls_key", "tls_ca", "etcd_cert", "etcd_key", "etcd_ca"), "FILE"),
}


def _replica_options() -> list[inspect.Parameter]:
    """An option with help for every setting of a replica, except failpoints, which come from the environment."""
    types = {**typing.get_type_hints(ReplicaSettings), "etcd": str}
    settings = (field for field in fields(ReplicaSettings) if field.name != "failpoints")
    return [_replica_option(field, types[field.name]) for field in settings]


def _replica_option(field: Field[Any], kind: Any) -> inspect.Parameter:
    default = _REPLICA_DEFAULTS.get(field.name, field.default)
    names = (f"--{field.name}",) if kind is bool else ()
    option = typer.Option(*names, metavar=_METAVARS.get(field.name), help=field.metadata[HELP])
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[kind, option],
    )


replica.__signature__ = inspect.Signature(_replica_options())  # type: ignore[attr-defined]
replica.__annotations__ = {option.name: option.annotation for option in _replica_options()}


def _kubernetes_option(**options: Any) -> Any:
    return typer.Option(rich_help_panel="Kubernetes", **options)


def joblet(
    target: Annotated[str, typer.Option(metavar="NAME", help="Target of this joblet; created when it does not exist.")],
    endpoints: Annotated[str, typer.Option(metavar="A,B", help="Replicas to connect to, as host:port.")],
    driver: Annotated[str, typer.Option(help="How tasks run: process, simulated or kubernetes.")] = "process",
    capacity: Annotated[
        str, typer.Option(metavar="cpu=4,memory=8Gi", help="Quantities that the target offers to tasks.")
    ] = "",
    count: Annotated[int, typer.Option(metavar="N", help="Number of simulated targets: NAME-0, NAME-1, ...")] = 1,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the joblet's state [default: in the folder of `up`].")
    ] = None,
    duration: Annotated[str, typer.Option(help="Simulated: how long a task runs.")] = "50ms",
    failure_rate: Annotated[float, typer.Option(help="Simulated: share of tasks that fail, 0 to 1.")] = 0.0,
    seed: Annotated[
        int, typer.Option(help="Simulated: seed of the failures; the same seed gives the same failures.")
    ] = 0,
    region: Annotated[str, typer.Option(help="Region of a created target.")] = "",
    labels: Annotated[str, typer.Option(metavar="zone=a,disk=ssd", help="Labels of a created target.")] = "",
    resizable: Annotated[
        bool, typer.Option("--resizable", help="Capacity of a created target follows this joblet.")
    ] = False,
    nice: Annotated[int, typer.Option(metavar="N", help="Niceness of task commands, 0 to 19; 10 under `up`.")] = 0,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the joblet's token [env CONTROLPLANE_TOKEN: the token]."),
    ] = None,
    tls_ca: Annotated[
        str,
        typer.Option(metavar="FILE", help="CA certificates of replicas that serve TLS [default: of `up` at A,B]."),
    ] = "",
    tls_cert: Annotated[
        str, typer.Option(metavar="FILE", help="Client certificate, where something before the replicas asks for one.")
    ] = "",
    tls_key: Annotated[str, typer.Option(metavar="FILE", help="Key of --tls-cert, open to nobody else.")] = "",
    enrol: Annotated[
        str, typer.Option(metavar="TOKEN", help="One-time token of `cpctl enrol` [env CONTROLPLANE_ENROL].")
    ] = "",
    enrol_file: Annotated[Path | None, typer.Option(metavar="FILE", help="File with such a token.")] = None,
    output_limit: Annotated[
        str, typer.Option(metavar="SIZE", help="Size kept of each output of a command; 0: everything.")
    ] = "64Mi",
    kubeconfig: Annotated[
        Path | None,
        _kubernetes_option(metavar="FILE", help="File to reach the cluster with; not needed inside the cluster."),
    ] = None,
    namespace: Annotated[
        str, _kubernetes_option(metavar="NS", help="Namespace of the pods [default: the joblet's own, or default].")
    ] = "",
    pull_secrets: Annotated[str, _kubernetes_option(metavar="A,B", help="Image pull secrets of all pods.")] = "",
    security: Annotated[
        str, _kubernetes_option(help="Pod security: restricted, or baseline, which lets images run as root.")
    ] = "restricted",
    grace: Annotated[str, _kubernetes_option(help="Time that a stopped pod has until it is killed.")] = "30s",
    request_timeout: Annotated[str, _kubernetes_option(help="Time limit of a request to the API.")] = "10s",
    tombstone: Annotated[str, _kubernetes_option(help="Time that an ended pod is kept.")] = "10m",
    start_patience: Annotated[str, _kubernetes_option(help="Time that a pod may wait for an image or a node.")] = "5m",
    away: Annotated[str, _kubernetes_option(help="Time without the API after which the target falls silent.")] = "10s",
    run_as: Annotated[
        str, typer.Option(metavar="USER", help="User that runs task commands; needs root [default: the joblet's own].")
    ] = "",
    task_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --run-as: folder of the commands' folders [default: DATA_DIR.tasks]."),
    ] = None,
    max_processes: Annotated[
        int, typer.Option(metavar="N", help="With --run-as: processes and threads that USER may have; 0: any number.")
    ] = 4096,
    hosted: Annotated[bool, typer.Option("--hosted", hidden=True, help="Started by a replica.")] = False,
) -> None:
    """Run one joblet, or many simulated ones."""
    from controlplane.aio.processes import keep_memory_private

    keep_memory_private()
    from controlplane.joblet import main
    from controlplane.joblet.joblet_settings import ClusterSettings, JobletSettings

    enrolment = _enrolment_token(enrol, enrol_file)
    token = "" if enrolment else _joblet_token(token_file, endpoints)
    settings = JobletSettings(
        target=target,
        endpoints=parse_endpoints(endpoints),
        driver=driver,
        capacity=quantities(capacity, "capacity"),
        count=count,
        data_dir=_joblet_folder(data_dir, driver, target),
        duration=quantity.parse_duration(duration, "duration"),
        failure_rate=failure_rate,
        seed=seed,
        # With a token the plane knows whose target a new one is.
        owner="" if token or enrolment else user(),
        token=token,
        tls_ca=tls_ca or _folder_ca(endpoints),
        tls_cert=tls_cert,
        tls_key=tls_key,
        enrol=enrolment,
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
        run_as=run_as,
        task_dir=str(task_dir.absolute()) if task_dir is not None else "",
        max_processes=max_processes,
        failpoints=os.environ.get("CONTROLPLANE_FAILPOINTS", ""),
    )
    log_setup.log_to(sys.stderr.fileno())
    asyncio.run(main.run(settings))


def quantities(text: str, field: str) -> dict[str, quantity.Number]:
    """The numbers of `cpu=4,memory=8Gi`."""
    return {name: quantity.parse(amount, f"{field}.{name}") for name, amount in pairs(text, field).items()}


def pairs(text: str, field: str) -> dict[str, str]:
    """The texts of `zone=a,disk=ssd`."""
    values: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise Invalid(field, f"must read name=value, several separated by commas, not {part!r}")
        values[name.strip()] = value
    return values


def _enrolment_token(given: str, file: Path | None) -> str:
    """The token of --enrol, which is hidden from the list of processes, of --enrol-file or of the environment."""
    if given:
        hide_argument(given)
    return given or (find_token(file) if file is not None else os.environ.get("CONTROLPLANE_ENROL", "").strip())


def _joblet_token(token_file: Path | None, endpoints: str) -> str:
    """The token of the option or of the environment; else that of the `up` which serves at one of the endpoints."""
    token = find_token(token_file)
    if token:
        return token
    source = find_endpoints(None, None)
    try:
        return source.token() if set(source.current()) & set(parse_endpoints(endpoints)) else ""
    except Unavailable:
        return ""


def _folder_ca(endpoints: str) -> str:
    """The CA file of the `up` which serves at one of the endpoints; empty where that is plain."""
    source = find_endpoints(None, None)
    try:
        return source.ca_file() if set(source.current()) & set(parse_endpoints(endpoints)) else ""
    except Unavailable:
        return ""


def _joblet_folder(given: Path | None, driver: str, target: str) -> str:
    """The folder of the joblet's state: real tasks outlive their joblet, so only simulated joblets need no folder."""
    if given is not None:
        return str(given.absolute())
    return str(default_data_dir() / "joblets" / target) if traits_of(driver).outlives_joblet else ""
