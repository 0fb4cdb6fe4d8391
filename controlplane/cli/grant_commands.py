"""`cpctl grant` and `ungrant`: bindings, which give a role to a subject or to every member of a group."""

from __future__ import annotations

from typing import Annotated

import typer

from controlplane.cli import access_tables
from controlplane.cli.output import Format
from controlplane.cli.shell import Shell, command
from controlplane.model.errors import Invalid
from controlplane.wire import json_shapes
from controlplane.wire.v1 import access_pb2


def register(app: typer.Typer) -> None:
    command(app, "grant")(grant)
    command(app, "ungrant")(ungrant)


async def grant(
    shell: Shell,
    role: Annotated[str, typer.Argument(metavar="ROLE", help="admin, operator, submitter or viewer.")],
    subject: Annotated[str, typer.Option(metavar="S", help="The subject that gets the role.")] = "",
    group: Annotated[str, typer.Option(metavar="G", help="The group whose members get the role.")] = "",
    owner: Annotated[str, typer.Option(metavar="O", help="Submitter and viewer: for the objects of this owner.")] = "",
) -> None:
    """Give a role to a subject or a group; `cpctl auth bindings` shows what was given."""
    if bool(subject) == bool(group):
        raise Invalid("subject", "give either --subject or --group")
    async with shell.client() as client:
        answer = await client.access.grant(access_pb2.Binding(role=role, subject=subject, group=group, owner=owner))
    item = json_shapes.plain("Binding", answer.item)
    if shell.out.is_table:
        shell.out.rows(access_tables.BINDINGS, [item])
    elif shell.out.form == Format.NAME:
        shell.out.text(item["name"])
    else:
        shell.out.value(item)


async def ungrant(
    shell: Shell, name: Annotated[str, typer.Argument(metavar="NAME", help="The binding, from `auth bindings`.")]
) -> None:
    """Take back a role that `grant` gave. The last administrator cannot be removed."""
    async with shell.client() as client:
        answer = await client.access.ungrant(name)
    if shell.out.is_table:
        shell.out.text(f"Binding {name} deleted")
    elif shell.out.form == Format.NAME:
        shell.out.text(name)
    else:
        shell.out.value({"kind": "Binding", "name": name, "result": "deleted", "revision": answer.revision})
