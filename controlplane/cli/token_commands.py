"""`cpctl token create`, `list` and `revoke`: the credentials of subjects.

The text of a token is in the answer to `create` and nowhere else, so `create` prints the text in every format.
"""

from __future__ import annotations

from typing import Annotated

import typer

from controlplane.cli import access_tables, shell
from controlplane.cli.output import Format
from controlplane.cli.shell import Shell, command
from controlplane.model import quantity
from controlplane.model.errors import Invalid
from controlplane.wire import convert, json_shapes
from controlplane.wire.v1 import access_pb2

# The JSON of a new token, besides its text.
_SHOWN = ("id", "subject", "roles", "owner", "expires")


def register(app: typer.Typer) -> None:
    tokens = shell.application("token", "Make, list and revoke the tokens of subjects.")
    command(tokens, "create")(create)
    command(tokens, "list")(list_tokens)
    command(tokens, "revoke")(revoke)
    app.add_typer(tokens)


async def create(
    shell: Shell,
    subject: Annotated[str, typer.Option(metavar="S", help="Name of the caller, who owns new orders and objects.")],
    role: Annotated[
        list[str], typer.Option(metavar="R", help="admin, operator, submitter, viewer or joblet; repeatable.")
    ],
    owner: Annotated[
        str, typer.Option(metavar="O", help="Submitter and viewer: act on the objects of this owner instead.")
    ] = "",
    group: Annotated[list[str] | None, typer.Option(metavar="G", help="Group of the subject; repeatable.")] = None,
    target: Annotated[
        list[str] | None, typer.Option(metavar="T", help="Joblet: a target that it may speak for; repeatable.")
    ] = None,
    driver: Annotated[str, typer.Option(metavar="D", help="Joblet: the only driver that it may use.")] = "",
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Time until the token ends (12h, 30d) [default: never].")
    ] = None,
) -> None:
    """Make a token and show its text, once; with -o name nothing but the text."""
    request = access_pb2.CreateTokenRequest(
        subject=subject,
        roles=role,
        owner=owner,
        groups=group or (),
        targets=target or (),
        driver=driver,
        expires_seconds=_seconds(expires),
    )
    async with shell.client() as client:
        answer = await client.access.create_token(request)
    item = {**convert.to_plain(answer.item), "token": answer.token}
    if shell.out.is_table:
        shell.out.rows(access_tables.NEW_TOKEN, [item])
        shell.say("the text of the token is shown only once: keep it in a file that nobody else can read")
    elif shell.out.form == Format.NAME:
        shell.out.text(answer.token)
    else:
        shell.out.value({key: item[key] for key in (*_SHOWN, "token")})


async def list_tokens(shell: Shell) -> None:
    """Show all tokens, without their texts."""
    async with shell.client() as client:
        answer = await client.access.tokens()
    items = [json_shapes.plain("Token", item) for item in answer.items]
    if shell.out.is_table:
        shell.out.rows(access_tables.TOKENS, items)
    elif shell.out.form == Format.NAME:
        for item in items:
            shell.out.text(item["id"])
    else:
        shell.out.value({"revision": answer.revision, "items": items})


async def revoke(
    shell: Shell, identity: Annotated[str, typer.Argument(metavar="ID", help="The token's id, from `token list`.")]
) -> None:
    """Revoke a token: its calls are refused and its streams end. The last administrator cannot be removed."""
    async with shell.client() as client:
        answer = await client.access.revoke_token(identity)
    if shell.out.is_table:
        shell.out.text(f"Token {identity} revoked")
    elif shell.out.form == Format.NAME:
        shell.out.text(identity)
    else:
        shell.out.value({"kind": "Token", "id": identity, "result": "revoked", "revision": answer.revision})


def _seconds(expires: str | None) -> float:
    """The time until the token ends, 0 for never."""
    if expires is None:
        return 0.0
    seconds = float(quantity.parse_duration(expires, "expires"))
    if not seconds:
        raise Invalid("expires", "must be more than 0; leave it out for a token that never ends")
    return seconds
