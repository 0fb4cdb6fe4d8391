"""`cpctl replay`: a past cycle decided again, from etcd's history and the cycle's own record."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from controlplane.cli.output import Format, Output
from controlplane.cli.shell import NO, Shell, command
from controlplane.replay.replayed import Replayed


def register(app: typer.Typer) -> None:
    command(app, "replay")(replay)


async def replay(
    shell: Shell,
    cycle: Annotated[int, typer.Option(min=1, metavar="N", help="The cycle's number, as `get cycles` shows it.")],
    etcd: Annotated[str, typer.Option("--etcd", metavar="URL", help="etcd itself; several separated by commas.")] = "",
) -> int | None:
    """Run a past cycle again; exit code 2 when it decides otherwise, 1 when it cannot be repeated."""
    from controlplane.aio.clock import SystemClock  # what speaks etcd takes a while to import
    from controlplane.cli import judging
    from controlplane.replay import replaying
    from controlplane.store.channel import EtcdOptions
    from controlplane.store.kv import Store

    store = Store(EtcdOptions(judging.locate(shell.where, etcd).etcd), SystemClock())
    try:
        found = (await replaying.replay(store, await replaying.record_of(store, cycle))).replayed
    finally:
        await store.close()
    show(shell.out, found)
    return None if found.same else NO


def show(out: Output, found: Replayed) -> None:
    if out.form == Format.NAME:
        out.text(found.got)
    elif not out.is_table:
        out.value(msgspec.to_builtins(found))
    else:
        out.text(sentence(found))


def sentence(found: Replayed) -> str:
    what = f"Cycle {found.cycle} (epoch {found.epoch}, revision {found.revision}, engine {found.engine})"
    did = f"{found.placed} of {found.considered} tasks placed"
    if found.same:
        return f"{what} decides the same again: {did}, hash {found.got[:16]}."
    return f"{what} decides otherwise now: {did}, hash {found.got[:16]} instead of {found.expected[:16]}."
