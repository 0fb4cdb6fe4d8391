"""`cpctl drill failover`: kills leaders of a running `up` under load, and reports the time to the next leader.

Kills begin when the offered rate of orders is reached, and a lower rate fails the drill. Afterwards every acknowledged
order is looked up in etcd, and every attempt in the joblets' records.
"""

from __future__ import annotations

import signal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.cli import shell
from controlplane.cli.output import TableColumn
from controlplane.cli.progress_bar import ProgressBar
from controlplane.cli.shell import NO, Shell, command

RECORD = "drill.jsonl"


class Signal(StrEnum):
    KILL = "KILL"
    TERM = "TERM"
    STOP = "STOP"


def register(app: typer.Typer) -> None:
    drills = shell.application("drill", "Break a running `up` on purpose, and check that no order is lost.")
    command(drills, "failover")(failover)
    app.add_typer(drills)


async def failover(
    shell: Shell,
    kills: Annotated[int, typer.Option(min=1, metavar="N", help="Number of leaders to kill.")] = 20,
    rate: Annotated[float, typer.Option(min=1, metavar="R", help="Orders to submit per second.")] = 50,
    sign: Annotated[
        Signal, typer.Option("--signal", help="Signal to the leader; a stopped leader is continued after 3 x TTL.")
    ] = Signal.KILL,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File for the acknowledged orders [default: DIR/drill.jsonl].")
    ] = None,
) -> int | None:
    """Kill leaders under load; exit code 2 when an order was lost, ran twice or failed, or the load was not reached."""
    from controlplane.standalone.drilling import (
        account,  # importing the etcd client takes a while
        failover,
    )

    shell.where.up()  # raises at once when no `up` runs
    assert shell.where.data_dir is not None
    with ProgressBar("failover", kills) as bar:
        drill = failover.Drill(shell.where, rate, record or shell.where.data_dir / RECORD, bar)
        answer = await drill.run(kills, signal.Signals[f"SIG{sign.value}"])
    _show(shell, answer)
    return None if account.is_good(answer, kills) else NO


def _show(shell: Shell, answer: dict[str, Any]) -> None:
    if shell.out.is_table:
        shell.out.rows(_COLUMNS, [answer])
    else:
        shell.out.value(answer)


def _part(name: str) -> TableColumn:
    def show(item: dict[str, Any]) -> str:
        seconds = item["seconds"][name]
        return "-" if seconds is None else f"{seconds:.3f}"

    return TableColumn(f"{name.upper()} S", show)


def _count(name: str) -> TableColumn:
    return TableColumn(name.replace("_rate", "/s").upper(), lambda item: str(item[name]))


_COLUMNS = (
    _count("kills"),
    *(_part(name) for name in ("p50", "p99", "max")),
    *(_count(name) for name in ("offered_rate", "reached_rate", "submitted", "succeeded", "lost", "duplicated")),
)
