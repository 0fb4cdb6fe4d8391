"""`cpctl drill failover`: kills leaders of a running `up` under load, and says how long the next one took.

The drill counts only under the load it promised: kills begin when the offered rate was reached, and an answer below
it is no. Afterwards every acknowledged order is looked for in etcd, and every attempt in the joblets' records.
"""

from __future__ import annotations

import signal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.cli import shell
from controlplane.cli.output import Column
from controlplane.cli.progress import Bar
from controlplane.cli.shell import NO, Shell, command

RECORD = "drill.jsonl"


class Signal(StrEnum):
    KILL = "KILL"
    TERM = "TERM"
    STOP = "STOP"


def register(app: typer.Typer) -> None:
    drills = shell.application("drill", "Break a running `up` on purpose, and see that nothing is lost.")
    command(drills, "failover")(failover)
    app.add_typer(drills)


async def failover(
    shell: Shell,
    kills: Annotated[int, typer.Option(min=1, metavar="N", help="How many leaders to kill.")] = 20,
    rate: Annotated[float, typer.Option(min=1, metavar="R", help="Orders a second to offer meanwhile.")] = 50,
    sign: Annotated[Signal, typer.Option("--signal", help="STOP is continued after 3 x TTL.")] = Signal.KILL,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where acknowledged orders go [default: DIR/drill.jsonl].")
    ] = None,
) -> int | None:
    """Kill leaders under load; exit code 2 when something was lost, ran twice, failed, or the load was not reached."""
    from controlplane.cli.drilling import account, failover  # what speaks etcd takes a while to import

    shell.where.up()  # says at once when nothing runs
    assert shell.where.data_dir is not None
    with Bar("failover", kills) as bar:
        drill = failover.Drill(shell.where, rate, record or shell.where.data_dir / RECORD, bar)
        answer = await drill.run(kills, signal.Signals[f"SIG{sign.value}"])
    _show(shell, answer)
    return None if account.is_good(answer, kills) else NO


def _show(shell: Shell, answer: dict[str, Any]) -> None:
    if shell.out.is_table:
        shell.out.rows(_COLUMNS, [answer])
    else:
        shell.out.value(answer)


def _part(name: str) -> Column:
    return Column(f"{name.upper()} S", lambda item: "-" if (found := item["seconds"][name]) is None else f"{found:.3f}")


def _count(name: str) -> Column:
    return Column(name.replace("_rate", "/s").upper(), lambda item: str(item[name]))


_COLUMNS = (
    _count("kills"),
    *(_part(name) for name in ("p50", "p99", "max")),
    *(_count(name) for name in ("offered_rate", "reached_rate", "submitted", "succeeded", "lost", "duplicated")),
)
