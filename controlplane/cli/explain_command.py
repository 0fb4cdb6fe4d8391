"""`cpctl explain`: the reasons why tasks of an order wait, now or in a past cycle."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from controlplane.cli import explanation_tables
from controlplane.cli.output import AnswerPrinter, Format, TableColumn
from controlplane.cli.shell import Shell, command
from controlplane.client.caller import CallTimeouts
from controlplane.model.explanation import Explanation
from controlplane.model.texts import printable
from controlplane.wire import convert

# A past cycle of a large cluster is read again from etcd.
LONG = CallTimeouts(attempt_seconds=60.0, total_seconds=60.0)


def register(app: typer.Typer) -> None:
    command(app, "explain")(explain)


async def explain(
    shell: Shell,
    order: Annotated[str, typer.Argument(metavar="ORDER", help="The order's id.")],
    cycle: Annotated[int, typer.Option(min=0, metavar="N", help="Explain as of this past cycle; 0: now.")] = 0,
) -> None:
    """Explain why the tasks of an order wait: target by target, and the orders served before."""
    async with shell.client(LONG) as client:
        explanation = convert.to_model(await client.orders.explain(order, cycle=cycle), Explanation)
    show(shell.out, explanation)


def show(out: AnswerPrinter, explanation: Explanation) -> None:
    """The conclusion first, then each group's targets, then the orders ahead."""
    if out.form == Format.NAME:
        out.text(explanation.order)
    elif not out.is_table:
        out.value(msgspec.to_builtins(explanation))
    else:
        out.text(printable(explanation.conclusion))
        explanation_tables.show(out, explanation.groups)
        _show_ahead(out, explanation)
        for error in explanation.rule_errors:
            out.text(printable(f"! {error}"))


def _show_ahead(out: AnswerPrinter, explanation: Explanation) -> None:
    if not explanation.ahead:
        return
    listed = sum(ahead.tasks for ahead in explanation.ahead)
    total = max(explanation.ahead_total, listed)
    out.text("")
    out.text(f"{total} {'task of another order is' if total == 1 else 'tasks of other orders are'} served before:")
    out.rows(AHEAD, explanation.ahead)
    if total > listed:
        out.text(f"and {total - listed} more")


AHEAD = (
    TableColumn("ORDER", lambda ahead: ahead.order),
    TableColumn("PRIORITY", lambda ahead: str(ahead.priority)),
    TableColumn("TASKS", lambda ahead: str(ahead.tasks)),
)
