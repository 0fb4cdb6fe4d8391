"""`cpctl auth whoami`, `can-i` and `bindings`: the caller, the caller's rights, and the roles that were granted."""

from __future__ import annotations

from typing import Annotated

import typer

from controlplane.cli import access_tables, shell
from controlplane.cli.output import Format
from controlplane.cli.shell import NO, Shell, command
from controlplane.wire import convert, json_shapes
from controlplane.wire.v1 import access_pb2


def register(app: typer.Typer) -> None:
    asking = shell.application("auth", "Ask who you are, what you may do, and who has which role.")
    command(asking, "whoami")(who_am_i)
    command(asking, "can-i")(can_i)
    command(asking, "bindings")(bindings)
    app.add_typer(asking)


async def who_am_i(shell: Shell) -> None:
    """Show the subject that the plane takes you for, with its roles."""
    async with shell.client() as client:
        subject = convert.to_plain(await client.access.who_am_i())
    if shell.out.is_table:
        shell.out.rows(access_tables.WHO, [subject])
        if not subject["name"]:
            shell.say("this plane asks nobody for credentials (--insecure)")
    elif shell.out.form == Format.NAME:
        shell.out.text(subject["name"])
    else:
        shell.out.value(subject)


async def can_i(
    shell: Shell,
    verb: Annotated[str, typer.Argument(metavar="VERB", help="read, create, update, delete, operate or connect.")],
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A kind, such as order, target, token or totals.")],
    owner: Annotated[str, typer.Option(metavar="O", help="For objects of this owner [default: of any owner].")] = "",
) -> int | None:
    """Say whether you may do something, and why not; exit code 2 for no."""
    async with shell.client() as client:
        answer = await client.access.can_i(access_pb2.CanIRequest(verb=verb, kind=kind, owner=owner))
    word = "yes" if answer.allowed else "no"
    if shell.out.is_table:
        shell.out.text(f"{word}: {answer.reason}" if answer.reason else word)
    elif shell.out.form == Format.NAME:
        shell.out.text(word)
    else:
        shell.out.value(
            {"allowed": answer.allowed, "verb": verb, "kind": kind, "owner": owner, "reason": answer.reason}
        )
    return None if answer.allowed else NO


async def bindings(shell: Shell) -> None:
    """Show all roles that were granted to subjects and groups."""
    async with shell.client() as client:
        answer = await client.access.bindings()
    items = [json_shapes.plain("Binding", item) for item in answer.items]
    if shell.out.is_table:
        if items:
            shell.out.rows(access_tables.BINDINGS, items)
        else:
            shell.say("no bindings")
    elif shell.out.form == Format.NAME:
        for item in items:
            shell.out.text(item["name"])
    else:
        shell.out.value({"revision": answer.revision, "items": items})
