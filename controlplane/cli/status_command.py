"""`cpctl status`: the control plane's replicas, etcd's space, the archive, and a restore under way."""

from __future__ import annotations

from typing import Any

import typer

from controlplane.cli.output import Format, TableColumn
from controlplane.cli.shell import NO, Shell, command
from controlplane.model.space import GIB
from controlplane.wire import json_shapes

REPLICAS = (
    TableColumn("REPLICA", lambda item: str(item["id"])),
    TableColumn("LEADS", lambda item: "yes" if item["leads"] else "-"),
    TableColumn("GRPC", lambda item: str(item["grpc"])),
    TableColumn("HTTP", lambda item: str(item["http"])),
    TableColumn("VERSION", lambda item: str(item["version"])),
)
_MOST_NAMED = 5


def register(app: typer.Typer) -> None:
    command(app, "status")(status)


async def status(shell: Shell) -> int | None:
    """Show the state of the control plane; exit code 2 without a leader, or while no new work is accepted."""
    async with shell.client() as client:
        answer = await client.cluster.status()
    status_json = json_shapes.cluster_status(answer)
    if shell.out.is_table:
        shell.out.rows(REPLICAS, status_json["replicas"])
        for sentence in sentences(status_json):
            shell.say(sentence)
    elif shell.out.form == Format.NAME:
        shell.out.text(status_json["etcd"]["level"])
    else:
        shell.out.value(status_json)
    return NO if not status_json["leader"] or status_json["etcd"]["level"] == "Full" else None


def sentences(status_json: dict[str, Any]) -> list[str]:
    etcd, restoring = status_json["etcd"], status_json["restoring"]
    said = [f"etcd {etcd['version']}: {_amounts(etcd)}{etcd['level']}"]
    age = f"{status_json['id']}'s cache was as new as etcd {status_json['cache_age_seconds']:.1f} s ago"
    said.append(f"{age}, at revision {status_json['revision']}")
    if etcd["why"]:
        said.append(etcd["why"])
    if status_json["archive_error"]:
        said.append(f"finished orders stay, the archive cannot be written: {status_json['archive_error']}")
    if status_json["poisoned"]:
        said += _of_poison(status_json["poisoned"], status_json["poison"][:_MOST_NAMED])
    if status_json["isolated"]["total"]:
        said += _of_isolated(status_json["isolated"])
    if restoring:
        waiting = ", ".join(restoring["waiting_for"]) or "nobody any more"
        said.append(f"restored at {restoring['since']}, nothing is placed yet; waits for the joblets of: {waiting}")
    return said


def _amounts(etcd: dict[str, Any]) -> str:
    """How full etcd is; empty for a caller who is told the level only."""
    return f"{etcd['in_use'] / GIB:.2f} of {etcd['quota'] / GIB:g} GiB in use, " if etcd["size"] else ""


def _of_poison(total: int, some: list[dict[str, str]]) -> list[str]:
    """The number of keys set aside, and a line for each of the first."""
    front = "1 key of etcd is" if total == 1 else f"{total} keys of etcd are"
    more = f"; {len(some)} of them:" if len(some) < total else ":"
    return [f"{front} set aside, the rest goes on{more}", *(f"  {poison['key']}: {poison['rule']}" for poison in some)]


def _of_isolated(isolated: dict[str, Any]) -> list[str]:
    """The number of isolated keys, and a line for each of the first."""
    total, some = isolated["total"], isolated["keys"][:_MOST_NAMED]
    front = "1 key is" if total == 1 else f"{total} keys are"
    more = f"; {len(some)} of them:" if len(some) < total else ":"
    said = [f"{front} isolated: handling fails, and is tried again later, the rest goes on{more}"]
    said += [
        f"  {key['kind']} {key['name']} ({key['part']}, {key['count']} x since {key['since']}): {key['error']}"
        for key in some
    ]
    return said
