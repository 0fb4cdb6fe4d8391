"""`cpctl replay`: a past cycle decided again, from etcd's history and the cycle's record."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from controlplane.cli.etcd_options import EtcdCa, EtcdCert, EtcdKey
from controlplane.cli.output import AnswerPrinter, Format
from controlplane.cli.shell import NO, Shell, command
from controlplane.replay import Replayed
from controlplane.standalone.endpoints import EtcdFiles


def register(app: typer.Typer) -> None:
    command(app, "replay")(replay)


async def replay(
    shell: Shell,
    cycle: Annotated[int, typer.Option(min=1, metavar="N", help="Number of the cycle, as in `get cycles`.")],
    etcd: Annotated[
        str, typer.Option("--etcd", metavar="URL", help="etcd to read; several URLs separated by commas.")
    ] = "",
    etcd_ca: EtcdCa = "",
    etcd_cert: EtcdCert = "",
    etcd_key: EtcdKey = "",
) -> int | None:
    """Run a past cycle again; exit code 2 when the decision differs, 1 when the cycle cannot be repeated."""
    from controlplane.aio.clock import SystemClock  # importing the etcd client takes a while
    from controlplane.replay import past_cycles
    from controlplane.store.channel import EtcdOptions
    from controlplane.store.kv import Store

    tls = shell.where.etcd_files(etcd, EtcdFiles(etcd_ca, etcd_cert, etcd_key))
    store = Store(EtcdOptions(shell.where.etcd_urls(etcd), *tls), SystemClock())
    try:
        replayed = (await past_cycles.replay(store, await past_cycles.record_of(store, cycle))).replayed
    finally:
        await store.close()
    show(shell.out, replayed)
    return None if replayed.same else NO


def show(out: AnswerPrinter, replayed: Replayed) -> None:
    if out.form == Format.NAME:
        out.text(replayed.got)
    elif not out.is_table:
        out.value(msgspec.to_builtins(replayed))
    else:
        out.text(sentence(replayed))


def sentence(replayed: Replayed) -> str:
    cycle = f"Cycle {replayed.cycle} (epoch {replayed.epoch}, revision {replayed.revision}, engine {replayed.engine})"
    placed = f"{replayed.placed} of {replayed.considered} tasks placed"
    if replayed.same:
        return f"{cycle} decides the same again: {placed}, hash {replayed.got[:16]}."
    return f"{cycle} decides otherwise now: {placed}, hash {replayed.got[:16]} instead of {replayed.expected[:16]}."
