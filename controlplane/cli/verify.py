"""`cpctl verify`: are the promises kept? Judged from etcd's history, the joblets' records and the replicas' word."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.cli.output import Column, Format
from controlplane.cli.progress import Bar
from controlplane.cli.shell import NO, Shell, command


def register(app: typer.Typer) -> None:
    command(app, "verify")(verify)


async def verify(
    shell: Shell,
    etcd: Annotated[str, typer.Option("--etcd", metavar="URL", help="etcd itself; several separated by commas.")] = "",
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Acknowledged orders, JSON lines with an id each.")
    ] = None,
) -> int | None:
    """Check the promises on a live etcd and its history; exit code 2 when one is broken."""
    from controlplane.cli import evidence, judging  # what speaks etcd takes a while to import

    acknowledged = evidence.identities(record) if record is not None else []
    with Bar("history", 1) as bar:
        place = judging.locate(shell.where, etcd)
        span, verdicts = await judging.run(
            place,
            acknowledged,
            lambda at, span: bar.at(at - span.first, max(span.last - span.first, 1)),
            lambda seconds: bar.say(f"something may not go on: listening for up to {seconds:.0f} s"),
        )
    _show(shell, span, verdicts)
    return NO if any(verdict.ok is False for verdict in verdicts) else None


def _show(shell: Shell, span: Any, verdicts: list[Any]) -> None:
    if shell.out.is_table:
        shell.out.rows(COLUMNS, verdicts)
        shell.say(f"revisions {span.first} to {span.last}")
    elif shell.out.form == Format.NAME:
        for verdict in verdicts:
            if verdict.ok is False:
                shell.out.text(verdict.promise)
    else:
        promises = [verdict.to_json() for verdict in verdicts]
        shell.out.value({"revision": span.last, "from_revision": span.first, "promises": promises})


def _first(verdict: Any) -> str:
    if not verdict.violations:
        return verdict.why or verdict.note or "-"
    first = verdict.violations[0]
    more = f" (and {len(verdict.violations) - 1} more)" if len(verdict.violations) > 1 else ""
    return f"{first.key}{f' at {first.revision}' if first.revision else ''}: {first.why}{more}"


COLUMNS = (
    Column("PROMISE", lambda verdict: verdict.promise),
    Column("OK", lambda verdict: {True: "yes", False: "NO", None: "unknown"}[verdict.ok]),
    Column("CHECKED", lambda verdict: str(verdict.checked)),
    Column("FIRST VIOLATION", _first),
)
