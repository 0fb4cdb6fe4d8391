"""`cpctl status`: how the control plane is: its replicas, etcd's room, the archive, a restore under way."""

from __future__ import annotations

from typing import Any

import typer

from controlplane.cli.output import Column, Format
from controlplane.cli.shell import NO, Shell, command
from controlplane.model.space import GIB

REPLICAS = (
    Column("REPLICA", lambda item: str(item["id"])),
    Column("LEADS", lambda item: "yes" if item["leads"] else "-"),
    Column("GRPC", lambda item: str(item["grpc"])),
    Column("HTTP", lambda item: str(item["http"])),
    Column("VERSION", lambda item: str(item["version"])),
)


def register(app: typer.Typer) -> None:
    command(app, "status")(status)


async def status(shell: Shell) -> int | None:
    """Show how the control plane is; exit code 2 when nobody leads or nothing new is taken."""
    async with shell.client() as client:
        answer = await client.cluster.status()
    found = shape(answer)
    if shell.out.is_table:
        shell.out.rows(REPLICAS, found["replicas"])
        for sentence in sentences(found):
            shell.say(sentence)
    elif shell.out.form == Format.NAME:
        shell.out.text(found["etcd"]["level"])
    else:
        shell.out.value(found)
    return NO if not found["leader"] or found["etcd"]["level"] == "Full" else None


def shape(answer: Any) -> dict[str, Any]:
    etcd = answer.etcd
    return {
        "id": answer.id,
        "version": answer.version,
        "revision": answer.revision,
        "leader": answer.leader.id or None,
        "replicas": [
            {
                "id": one.id,
                "grpc": one.grpc,
                "http": one.http,
                "pid": one.pid,
                "version": one.version,
                "leads": one.leads,
            }
            for one in answer.replicas
        ],
        "orders": answer.orders,
        "targets": answer.targets,
        "keys": answer.keys,
        "poisoned": answer.poisoned,
        "repaired": answer.repaired,
        "cache_age_seconds": round(answer.cache_age_seconds, 3),
        "etcd": {
            "cluster_id": etcd.cluster_id,
            "version": etcd.version,
            "size": etcd.size,
            "in_use": etcd.in_use,
            "quota": etcd.quota,
            "alarm": etcd.alarm,
            "level": etcd.level,
            "why": etcd.why,
        },
        "archive_error": answer.archive_error or None,
        "restoring": (
            {"since": answer.restoring.since, "waiting_for": list(answer.restoring.waiting_for)}
            if answer.HasField("restoring")
            else None
        ),
    }


def sentences(found: dict[str, Any]) -> list[str]:
    etcd, restoring = found["etcd"], found["restoring"]
    said = [
        f"etcd {etcd['version']}: {etcd['in_use'] / GIB:.2f} of {etcd['quota'] / GIB:g} GiB in use, {etcd['level']}"
    ]
    age = f"{found['id']}'s cache was as new as etcd {found['cache_age_seconds']:.1f} s ago"
    said.append(f"{age}, at revision {found['revision']}")
    if etcd["why"]:
        said.append(etcd["why"])
    if found["archive_error"]:
        said.append(f"finished orders stay, the archive cannot be written: {found['archive_error']}")
    if restoring:
        waiting = ", ".join(restoring["waiting_for"]) or "nobody any more"
        said.append(f"restored at {restoring['since']}, nothing is placed yet; waits for the joblets of: {waiting}")
    return said
