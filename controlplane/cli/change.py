"""`cpctl cancel`, `pause`, `resume` and `update`: wishes about things that are there already."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controlplane.cli import kinds, shapes, tables
from controlplane.cli.output import Format
from controlplane.cli.shell import Shell, command
from controlplane.model.errors import Invalid
from controlplane.wire.v1 import orders_pb2

_ORDER = Annotated[str, typer.Argument(metavar="ORDER", help="The order's id.")]


def register(app: typer.Typer) -> None:
    command(app, "cancel")(cancel)
    command(app, "pause")(pause)
    command(app, "resume")(resume)
    command(app, "update")(update)


async def cancel(shell: Shell, order: _ORDER) -> None:
    """Stop an order: what runs is killed, what waits never starts."""
    async with shell.client() as client:
        show_order(shell, await client.orders.cancel(order))


async def pause(shell: Shell, order: _ORDER) -> None:
    """Place nothing more of an order; what runs goes on."""
    async with shell.client() as client:
        show_order(shell, await client.orders.pause(order))


async def resume(shell: Shell, order: _ORDER) -> None:
    """Go on with a paused order."""
    async with shell.client() as client:
        show_order(shell, await client.orders.resume(order))


async def update(
    shell: Shell,
    kind: Annotated[str, typer.Argument(metavar="order", help="What to change: order.")],
    name: Annotated[str, typer.Argument(metavar="ID", help="The order's id.")],
    priority: Annotated[int | None, typer.Option(help="1 to 100; 100 goes first.")] = None,
) -> None:
    """Change an order under way."""
    if kinds.find(kind).name != "Order":
        raise Invalid("kind", "only an order can be updated this way; use apply for the rest")
    if priority is None:
        raise Invalid("priority", "must be given: there is nothing else to update")
    async with shell.client() as client:
        show_order(shell, await client.orders.update(orders_pb2.UpdateOrderRequest(id=name, priority=priority)))


def show_order(shell: Shell, answer: orders_pb2.OrderResponse) -> None:
    warn(shell, answer)
    show(shell, shapes.plain("Order", answer.item))


def show(shell: Shell, item: dict[str, Any]) -> None:
    if shell.out.is_table:
        shell.out.rows(tables.ORDERS, [item])
    elif shell.out.form == Format.NAME:
        shell.out.text(item["id"])
    else:
        shell.out.value(item)


def warn(shell: Shell, answer: Any) -> None:
    for warning in answer.warnings:
        shell.say(f"warning: {warning.field}: {warning.message}")
