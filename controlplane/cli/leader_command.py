"""`cpctl leader`, `step-down` and `version`: commands about the control plane itself."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import controlplane
from controlplane.cli import ages, tables
from controlplane.cli.output import Format
from controlplane.cli.shell import NO, Shell, command
from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.model.errors import ControlPlaneError
from controlplane.wire import json_shapes


def register(app: typer.Typer) -> None:
    command(app, "leader")(leader)
    command(app, "step-down")(step_down)
    command(app, "version")(version)


async def leader(
    shell: Shell, watch: Annotated[bool, typer.Option("--watch", "-w", help="Then show every change.")] = False
) -> int | None:
    """Show the leader; exit code 2 without a leader."""
    async with shell.client() as client:
        if not watch:
            leading = json_shapes.leader(await client.cluster.leader())
            _show(shell, leading, live=False)
            if shell.out.is_table:
                await _warn_of_clocks(shell, client)
            return None if leading["id"] else NO
        async for message in client.cluster.watch_leader():
            _show(shell, json_shapes.leader(message), live=True)
    return None


async def _warn_of_clocks(shell: Shell, client: Client) -> None:
    """Warns of wrong clocks: deadlines, windows and schedules follow the wall clock of the leader."""
    for replica in (await client.cluster.status()).replicas:
        if replica.HasField("clock_off"):
            ahead = "ahead" if replica.clock_off > 0 else "behind"
            shell.say(f"warning: the clock of {replica.id} is {ages.show(abs(replica.clock_off))} {ahead}")


async def step_down(shell: Shell) -> None:
    """Make the leader give up its term; the other replicas elect the next leader."""
    async with shell.client() as client:
        answer = await client.cluster.step_down()
    if shell.out.is_table or shell.out.form == Format.NAME:
        shell.out.text(f"term {answer.epoch} ended" if shell.out.is_table else str(answer.epoch))
    else:
        shell.out.value({"epoch": answer.epoch})


async def version(shell: Shell) -> None:
    """Show the version of cpctl, and of the replica that answers, if any."""
    server: dict[str, Any] | None = None
    try:
        async with shell.client(CallTimeouts(attempt_seconds=1.0, total_seconds=0.0)) as client:
            status = await client.cluster.status()
            server = {"id": status.id, "version": status.version}
    except ControlPlaneError:
        pass  # the version of cpctl is shown without a control plane too
    if shell.out.is_table or shell.out.form == Format.NAME:
        shell.out.text(f"cpctl {controlplane.__version__}")
        if server and shell.out.is_table:
            shell.out.text(f"{server['id']} {server['version']}")
    else:
        shell.out.value({"version": controlplane.__version__, "server": server})


def _show(shell: Shell, leading: dict[str, Any], *, live: bool) -> None:
    if shell.out.is_table:
        if leading["id"] is None:
            shell.say("nobody leads")
        else:
            shell.out.rows(tables.LEADER, [leading], header=not shell.out.has_header)
    elif shell.out.form == Format.NAME:
        shell.out.text(leading["id"] or "")
    elif live:
        shell.out.line(leading)
    else:
        shell.out.value(leading)
