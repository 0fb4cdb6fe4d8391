"""`cpctl enrol`: a one-time token with which a joblet joins.

The text of the token is in the answer and nowhere else, so the command prints it in every format.
"""

from __future__ import annotations

from typing import Annotated

import typer

from controlplane.cli import access_tables
from controlplane.cli.output import Format
from controlplane.cli.shell import Shell, command
from controlplane.model import credential, quantity
from controlplane.model.errors import Invalid
from controlplane.model.target import targets_of
from controlplane.wire import convert
from controlplane.wire.v1 import access_pb2

_SHOWN = ("id", "targets", "driver", "owner", "expires")


def register(app: typer.Typer) -> None:
    command(app, "enrol")(enrol)


async def enrol(
    shell: Shell,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Target of the joblet; created when missing.")],
    count: Annotated[
        int, typer.Option(metavar="N", help="Targets of one joblet with --count N: TARGET-0, TARGET-1, ...")
    ] = 1,
    driver: Annotated[str, typer.Option(metavar="D", help="The only driver that the joblet may use.")] = "",
    owner: Annotated[str, typer.Option(metavar="O", help="Owner of created targets [default: the caller].")] = "",
    expires: Annotated[str, typer.Option(metavar="DURATION", help="Time until the token ends, unused.")] = "1h",
) -> None:
    """Make a one-time token for `controlplane joblet --enrol` and show its text, once."""
    if not 1 <= count <= credential.MOST_TARGETS:
        raise Invalid("count", f"must be 1 to {credential.MOST_TARGETS}, not {count}")
    seconds = float(quantity.parse_duration(expires, "expires"))
    if not seconds:
        raise Invalid("expires", "must be more than 0")
    request = access_pb2.CreateEnrolmentRequest(
        targets=targets_of(target, count), driver=driver, owner=owner, expires_seconds=seconds
    )
    async with shell.client() as client:
        answer = await client.access.create_enrolment(request)
    item = {**convert.to_plain(answer.item), "token": answer.token}
    if shell.out.is_table:
        shell.out.rows(access_tables.ENROLMENT, [item])
        more = f" --count {count}" if count > 1 else ""
        shell.say(f"use it once: controlplane joblet --target {target}{more} --endpoints A,B --enrol TOKEN")
    elif shell.out.form == Format.NAME:
        shell.out.text(answer.token)
    else:
        shell.out.value({key: item[key] for key in (*_SHOWN, "token")})
