"""`cpctl explain`: why the tasks of an order wait, now or in a past cycle."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from controlplane.cli import verdicts
from controlplane.cli.output import Column, Format, Output
from controlplane.cli.shell import Shell, command
from controlplane.client.caller import Patience
from controlplane.model.explanation import Explanation
from controlplane.model.texts import printable
from controlplane.wire import convert

# A past cycle of a big world is listed and read anew.
LONG = Patience(attempt_seconds=60.0, total_seconds=60.0)


def register(app: typer.Typer) -> None:
    command(app, "explain")(explain)


async def explain(
    shell: Shell,
    order: Annotated[str, typer.Argument(metavar="ORDER", help="The order's id.")],
    cycle: Annotated[int, typer.Option(min=0, metavar="N", help="As this past cycle saw it; 0: now.")] = 0,
) -> None:
    """Say why the tasks of an order wait: target by target, and who is served before."""
    async with shell.client(LONG) as client:
        found = convert.to_model(await client.orders.explain(order, cycle=cycle), Explanation)
    show(shell.out, found)


def show(out: Output, found: Explanation) -> None:
    """The conclusion first, then each group's targets, then who is ahead."""
    if out.form == Format.NAME:
        out.text(found.order)
    elif not out.is_table:
        out.value(msgspec.to_builtins(found))
    else:
        out.text(printable(found.conclusion))
        verdicts.show(out, found.groups)
        _show_ahead(out, found)
        for error in found.rule_errors:
            out.text(printable(f"! {error}"))


def _show_ahead(out: Output, found: Explanation) -> None:
    if not found.ahead:
        return
    listed = sum(ahead.tasks for ahead in found.ahead)
    total = max(found.ahead_total, listed)
    out.text("")
    out.text(f"{total} {'task of another order is' if total == 1 else 'tasks of other orders are'} served before:")
    out.rows(AHEAD, found.ahead)
    if total > listed:
        out.text(f"and {total - listed} more")


AHEAD = (
    Column("ORDER", lambda ahead: ahead.order),
    Column("PRIORITY", lambda ahead: str(ahead.priority)),
    Column("TASKS", lambda ahead: str(ahead.tasks)),
)
