"""`cpctl plan`: what would become of an order, in this world or in another one. Nothing is written."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from controlplane.cli import ages, documents, verdicts
from controlplane.cli.explain import LONG
from controlplane.cli.output import Column, Format, Output
from controlplane.cli.shell import NO, Shell, command
from controlplane.cli.submitting import user
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
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="One Order; - reads standard input.")],
    with_: Annotated[
        list[str] | None, typer.Option("--with", metavar="FILE", help="As if these targets were there, and ready.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="TARGET", help="As if this target were not there.")
    ] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", help="As if the order had this priority.")] = None,
) -> int | None:
    """Say where the tasks of an order would go, and when, or why not; exit code 2 when not placeable."""
    request = orders_pb2.PlanRequest(
        order=_order(file),
        with_targets=[target for path in with_ or () for target in _targets(path)],
        without_targets=without or (),
        priority=priority,
    )
    async with shell.client(LONG) as client:
        found = convert.to_model(await client.orders.plan(request), Plan)
    show(shell.out, found)
    return None if found.placeable else NO


def _order(path: str) -> orders_pb2.Order:
    found = documents.read(path)
    order = found[0].object
    if len(found) != 1 or not isinstance(order, OrderRequest):
        raise Invalid(path, "must hold exactly one Order")
    return convert.to_wire(msgspec.structs.replace(order, owner=order.owner or user()), orders_pb2.Order)


def _targets(path: str) -> list[targets_pb2.Target]:
    found = []
    for document in documents.read(path):
        if not isinstance(document.object, Target):
            raise Invalid(document.place, "must be a Target")
        found.append(convert.to_wire(document.object, targets_pb2.Target))
    return found


def show(out: Output, found: Plan) -> None:
    """The conclusion first, then where what goes, then why the rest does not go now."""
    if out.form == Format.NAME:
        for target in dict.fromkeys(placement.target for placement in found.placements):
            out.text(target)
    elif not out.is_table:
        out.value(msgspec.to_builtins(found))
    else:
        out.text(printable(found.conclusion))
        if found.placements:
            out.text("")
            out.rows(PLACEMENTS, found.placements)
        if found.evictions:
            out.text("")
            out.rows(EVICTIONS, found.evictions)
        verdicts.show(out, found.groups)


def _starts(placement: PlannedPlacement) -> str:
    seconds = placement.start_in_seconds
    return f"in about {ages.show(seconds)}" if seconds > 0 else "now"


EVICTIONS = (
    Column("STOPS", lambda eviction: eviction.fulfilment),
    Column("ORDER", lambda eviction: eviction.order),
    Column("TARGET", lambda eviction: eviction.target),
)
PLACEMENTS = (
    Column("JOB", lambda placement: placement.job),
    Column("COUNT", lambda placement: str(placement.count)),
    Column("TARGET", lambda placement: placement.target),
    Column("STARTS", _starts),
)
