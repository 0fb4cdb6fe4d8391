"""`cpctl cordon`, `uncordon` and `drain`: wishes about targets; and whether one may be deleted without a question.

A wish is an update on the revision that was read, so two people who wish at once do not undo each other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated

import typer

from controlplane.cli import change, shapes, tables
from controlplane.cli.output import Format
from controlplane.cli.shell import Shell, command
from controlplane.client import Client
from controlplane.model import quantity
from controlplane.model.errors import Conflict, IllegalTransition, NotFound
from controlplane.model.lifecycle import TargetPhase
from controlplane.wire.v1 import common_pb2, targets_pb2

_TARGET = Annotated[str, typer.Argument(metavar="TARGET", help="The target's name.")]
_TRIES = 5
# Nothing is there that could still run.
_EMPTY = frozenset({TargetPhase.DRAINED, TargetPhase.FAILED, TargetPhase.PROVISIONING, TargetPhase.GONE})


def register(app: typer.Typer) -> None:
    command(app, "cordon")(cordon)
    command(app, "uncordon")(uncordon)
    command(app, "drain")(drain)


async def cordon(shell: Shell, target: _TARGET) -> None:
    """Place nothing new on a target; what runs there goes on."""

    def wish(item: targets_pb2.Target) -> None:
        item.cordoned = True

    async with shell.client() as client:
        _show(shell, await _change(shell, client, target, wish))


async def uncordon(shell: Shell, target: _TARGET) -> None:
    """Let a target take work again, whether it was cordoned or drained."""

    def wish(item: targets_pb2.Target) -> None:
        item.cordoned = item.drain = False
        item.ClearField("drain_timeout")

    async with shell.client() as client:
        _show(shell, await _change(shell, client, target, wish))


async def drain(
    shell: Shell,
    target: _TARGET,
    timeout: Annotated[
        str, typer.Option(help="How long what runs may still take, such as 5m; 0: none [as the settings say].")
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Return when nothing runs there any more.")] = False,
) -> None:
    """Empty a target: nothing new is placed, and what has not ended in time is stopped and tried elsewhere."""
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
    """Whether to ask for the end of this target. One whose joblet is there, and that nobody drained, goes only with a
    person's word: its joblet stops all that it runs. What has work on it is for the replica to refuse."""
    try:
        item = await client.targets.get(name)
    except NotFound:
        return True
    if not item.live.session or item.drain:
        return True
    if (await client.fulfilments.page(common_pb2.ListRequest(target=name, limit=1))).items:
        return True
    if not sys.stdin.isatty():
        what = f"target {name!r} is {item.status.phase}, and its joblet is connected"
        raise IllegalTransition(f"{what}: drain it first (cpctl drain {name} --wait), or say --yes")
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
            change.warn(shell, await client.targets.update(item))
        except Conflict:
            continue
        found: targets_pb2.Target = await client.targets.get(name)
        return found
    raise Conflict(f"target {name} keeps being changed by others; try again")


async def _drained(shell: Shell, client: Client, item: targets_pb2.Target) -> targets_pb2.Target:
    shell.say(f"waiting until nothing runs on {item.name} any more")
    async with aclosing(client.targets.watch(common_pb2.WatchRequest(name=item.name))) as events:
        async for event in events:
            if event.type == "delete" or (event.type == "put" and event.object.status.phase in _EMPTY):
                return event.object if event.type == "put" else item
    return item


def _show(shell: Shell, item: targets_pb2.Target) -> None:
    plain = shapes.plain("Target", item)
    if shell.out.is_table:
        shell.out.rows(tables.TARGETS, [plain])
    elif shell.out.form == Format.NAME:
        shell.out.text(plain["name"])
    else:
        shell.out.value(plain)
