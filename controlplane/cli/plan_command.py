"""`cpctl plan`: the placement that an order would get, in this cluster or a supposed cluster. Writes no state."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from controlplane.cli import ages, documents, explanation_tables
from controlplane.cli.explain_command import LONG
from controlplane.cli.output import AnswerPrinter, Format, TableColumn
from controlplane.cli.shell import NO, Shell, command
from controlplane.model.errors import Invalid
from controlplane.model.explanation import Plan, PlannedPlacement
from controlplane.model.order import OrderRequest
from controlplane.model.target import Target
from controlplane.model.texts import printable
from controlplane.wire import convert
from controlplane.wire.v1 import orders_pb2, targets_pb2


def register(app: typer.Typer) -> None:
    command(app, "plan")(plan)


async def plan(
    shell: Shell,
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="FILE", help="File with an Order; - reads standard input.")
    ],
    with_: Annotated[
        list[str] | None, typer.Option("--with", metavar="FILE", help="File of targets to suppose, as ready.")
    ] = None,
    without: Annotated[list[str] | None, typer.Option(metavar="TARGET", help="Target to suppose away.")] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", help="Priority to suppose for the order.")] = None,
) -> int | None:
    """Show targets and start times that the tasks of an order would get; exit code 2 when not placeable."""
    request = orders_pb2.PlanRequest(
        order=_order(file),
        with_targets=[target for path in with_ or () for target in _targets(path)],
        without_targets=without or (),
        priority=priority,
    )
    request.order.owner = request.order.owner or shell.default_owner
    async with shell.client(LONG) as client:
        planned = convert.to_model(await client.orders.plan(request), Plan)
    show(shell.out, planned)
    return None if planned.placeable else NO


def _order(path: str) -> orders_pb2.Order:
    objects = documents.read(path)
    order = objects[0].object
    if len(objects) != 1 or not isinstance(order, OrderRequest):
        raise Invalid(path, "must hold exactly one Order")
    return convert.to_wire(order, orders_pb2.Order)


def _targets(path: str) -> list[targets_pb2.Target]:
    targets = []
    for document in documents.read(path):
        if not isinstance(document.object, Target):
            raise Invalid(document.place, "must be a Target")
        targets.append(convert.to_wire(document.object, targets_pb2.Target))
    return targets


def show(out: AnswerPrinter, planned: Plan) -> None:
    """The conclusion first, then placements and evictions, then the reasons of waiting tasks."""
    if out.form == Format.NAME:
        for target in dict.fromkeys(placement.target for placement in planned.placements):
            out.text(target)
    elif not out.is_table:
        out.value(msgspec.to_builtins(planned))
    else:
        out.text(printable(planned.conclusion))
        if planned.placements:
            out.text("")
            out.rows(PLACEMENTS, planned.placements)
        if planned.evictions:
            out.text("")
            out.rows(EVICTIONS, planned.evictions)
        explanation_tables.show(out, planned.groups)


def _starts(placement: PlannedPlacement) -> str:
    seconds = placement.start_in_seconds
    return f"in about {ages.show(seconds)}" if seconds > 0 else "now"


EVICTIONS = (
    TableColumn("STOPS", lambda eviction: eviction.fulfilment),
    TableColumn("ORDER", lambda eviction: eviction.order),
    TableColumn("TARGET", lambda eviction: eviction.target),
)
PLACEMENTS = (
    TableColumn("JOB", lambda placement: placement.job),
    TableColumn("COUNT", lambda placement: str(placement.count)),
    TableColumn("TARGET", lambda placement: placement.target),
    TableColumn("STARTS", _starts),
)
