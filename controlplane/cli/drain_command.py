"""`cpctl cordon`, `uncordon` and `drain`: changes of targets; and whether a target may be deleted without a question.

A change is an update of the revision that was read, so two people who change a target at once do not undo each other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated

import typer

from controlplane.cli import order_commands, tables
from controlplane.cli.output import Format
from controlplane.cli.shell import Shell, command
from controlplane.client import Client
from controlplane.model import quantity
from controlplane.model.errors import Conflict, IllegalTransition, NotFound
from controlplane.model.lifecycle import TargetPhase
from controlplane.wire import json_shapes
from controlplane.wire.v1 import common_pb2, targets_pb2

_TARGET = Annotated[str, typer.Argument(metavar="TARGET", help="The target's name.")]
_TRIES = 5
# Phases of targets on which no task can run.
_EMPTY = frozenset({TargetPhase.DRAINED, TargetPhase.FAILED, TargetPhase.PROVISIONING, TargetPhase.GONE})


def register(app: typer.Typer) -> None:
    command(app, "cordon")(cordon)
    command(app, "uncordon")(uncordon)
    command(app, "drain")(drain)


async def cordon(shell: Shell, target: _TARGET) -> None:
    """Place no new tasks on a target; running tasks go on."""

    def wish(item: targets_pb2.Target) -> None:
        item.cordoned = True

    async with shell.client() as client:
        _show(shell, await _change(shell, client, target, wish))


async def uncordon(shell: Shell, target: _TARGET) -> None:
    """Let a cordoned or drained target take tasks again."""

    def wish(item: targets_pb2.Target) -> None:
        item.cordoned = item.drain = False
        item.ClearField("drain_timeout")

    async with shell.client() as client:
        _show(shell, await _change(shell, client, target, wish))


async def drain(
    shell: Shell,
    target: _TARGET,
    timeout: Annotated[
        str,
        typer.Option(
            help="Time that running tasks have, such as 5m; 0: none [default: drain_timeout of the settings]."
        ),
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Return when no task runs on the target.")] = False,
) -> None:
    """Empty a target: no new tasks are placed, and tasks that do not end in time are stopped and retried elsewhere."""
    # Zero needs no unit.
    seconds = quantity.parse_duration(0 if timeout == "0" else timeout, "timeout") if timeout else None

    def wish(item: targets_pb2.Target) -> None:
        item.drain = True
        item.ClearField("drain_timeout")
        if seconds is not None:
            item.drain_timeout = seconds

    async with shell.client() as client:
        item = await _change(shell, client, target, wish)
        _show(shell, await _drained(shell, client, item) if wait else item)


async def may_go(shell: Shell, client: Client, name: str) -> bool:
    """Whether to send the delete of a target. A target with a connected joblet that is not drained needs a person's
    consent, because its joblet stops all tasks. The replica itself refuses a target with fulfilments."""
    try:
        item = await client.targets.get(name)
    except NotFound:
        return True
    if not item.live.session or item.drain:
        return True
    if (await client.fulfilments.page(common_pb2.ListRequest(target=name, limit=1))).items:
        return True
    if not sys.stdin.isatty():
        state = f"target {name!r} is {item.status.phase}, and its joblet is connected"
        raise IllegalTransition(f"{state}: drain it first (cpctl drain {name} --wait), or say --yes")
    if typer.confirm(f"Target {name} is {item.status.phase}, and its joblet is connected. Delete it?", err=True):
        return True
    shell.say(f"target {name} was not deleted")
    return False


async def _change(
    shell: Shell, client: Client, name: str, wish: Callable[[targets_pb2.Target], None]
) -> targets_pb2.Target:
    for _ in range(_TRIES):
        item: targets_pb2.Target = await client.targets.get(name)
        wish(item)
        for written_by_the_system in ("status", "live", "created"):
            item.ClearField(written_by_the_system)
        try:
            order_commands.warn(shell, await client.targets.update(item))
        except Conflict:
            continue
        changed: targets_pb2.Target = await client.targets.get(name)
        return changed
    raise Conflict(f"target {name} keeps being changed by others; try again")


async def _drained(shell: Shell, client: Client, item: targets_pb2.Target) -> targets_pb2.Target:
    shell.say(f"waiting until no task runs on {item.name}")
    async with aclosing(client.targets.watch(common_pb2.WatchRequest(name=item.name))) as events:
        async for event in events:
            if event.type == "delete" or (event.type == "put" and event.object.status.phase in _EMPTY):
                return event.object if event.type == "put" else item
    return item


def _show(shell: Shell, item: targets_pb2.Target) -> None:
    plain = json_shapes.plain("Target", item)
    if shell.out.is_table:
        shell.out.rows(tables.TARGETS, [plain])
    elif shell.out.form == Format.NAME:
        shell.out.text(plain["name"])
    else:
        shell.out.value(plain)
