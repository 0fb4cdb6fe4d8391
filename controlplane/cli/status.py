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
_MOST_NAMED = 5


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
        "poison": [{"key": one.key, "rule": one.rule} for one in answer.poisoned_keys],
        "repaired": answer.repaired,
        "cache_age_seconds": round(answer.cache_age_seconds, 3),
        "isolated": {"total": answer.isolated, "keys": [_isolated(key) for key in answer.isolated_keys]},
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


def _isolated(key: Any) -> dict[str, Any]:
    return {
        "kind": key.kind,
        "name": key.name,
        "part": key.part,
        "error": key.error,
        "count": key.count,
        "since": key.since,
        "again": key.again,
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
    if found["poisoned"]:
        said += _of_poison(found["poisoned"], found["poison"][:_MOST_NAMED])
    if found["isolated"]["total"]:
        said += _of_isolated(found["isolated"])
    if restoring:
        waiting = ", ".join(restoring["waiting_for"]) or "nobody any more"
        said.append(f"restored at {restoring['since']}, nothing is placed yet; waits for the joblets of: {waiting}")
    return said


def _of_poison(total: int, some: list[dict[str, str]]) -> list[str]:
    """How many keys are set aside, and a line for each of some."""
    front = "1 key of etcd is" if total == 1 else f"{total} keys of etcd are"
    more = f"; {len(some)} of them:" if len(some) < total else ":"
    return [f"{front} set aside, the rest goes on{more}", *(f"  {one['key']}: {one['rule']}" for one in some)]


def _of_isolated(isolated: dict[str, Any]) -> list[str]:
    """How many keys are left out, and a line for each of some."""
    total, some = isolated["total"], isolated["keys"][:_MOST_NAMED]
    front = "1 key is" if total == 1 else f"{total} keys are"
    more = f"; {len(some)} of them:" if len(some) < total else ":"
    said = [f"{front} isolated: handling fails, and is tried again later, the rest goes on{more}"]
    said += [
        f"  {key['kind']} {key['name']} ({key['part']}, {key['count']} x since {key['since']}): {key['error']}"
        for key in some
    ]
    return said
