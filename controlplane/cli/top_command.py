"""`cpctl top`: the use of targets, or the orders under way, and the totals of the whole system."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import typer

from controlplane.cli import tables
from controlplane.cli.output import Format, TableColumn
from controlplane.cli.shell import Shell, command
from controlplane.client import Client
from controlplane.client.service_calls import PAGE
from controlplane.model import quantity
from controlplane.model.errors import Invalid
from controlplane.wire import convert, json_shapes
from controlplane.wire.v1 import cluster_pb2, common_pb2

_KINDS = ("targets", "orders")
_OPEN = ("Running", "Paused", "Pending")


def register(app: typer.Typer) -> None:
    command(app, "top")(top)


async def top(
    shell: Shell,
    kind: Annotated[
        str, typer.Argument(metavar="[targets|orders]", help="Objects to show beside the totals.")
    ] = "targets",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show again whenever the totals change.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 1000,
) -> None:
    """Show the use and load of targets or orders."""
    if kind not in _KINDS:
        raise Invalid("kind", f"must be one of {', '.join(_KINDS)}, not {kind!r}")
    async with shell.client() as client:
        if not watch:
            await _show(shell, client, kind, limit, await client.cluster.totals())
        else:
            async for totals in client.cluster.watch_totals():
                await _show(shell, client, kind, limit, totals, again=True)


async def _show(
    shell: Shell, client: Client, kind: str, limit: int, totals: cluster_pb2.Totals, *, again: bool = False
) -> None:
    items = await (_targets(client, limit) if kind == "targets" else _orders(client, limit))
    counted = convert.to_plain(totals)
    if shell.out.form == Format.NAME:
        for item in items:
            shell.out.text(str(item.get("name") or item.get("id")))
    elif shell.out.is_table:
        if items:
            shell.out.rows(TARGETS if kind == "targets" else ORDERS, items)
        else:
            shell.say(f"no {kind}")
        shell.out.text(totals_line(counted))
    else:
        (shell.out.line if again else shell.out.value)({"totals": counted, kind: items})


async def _targets(client: Client, limit: int) -> list[dict[str, Any]]:
    items = []
    async for item in _items(client.targets, limit):
        target = json_shapes.plain("Target", item)
        live = target["live"] or {}
        items.append(
            {
                "name": target["name"],
                "phase": target["status"]["phase"],
                "used": target["status"].get("used", {}),
                "free": target["status"].get("free", {}),
                "stats": live.get("stats", {}),
                "reported": live.get("reported") or None,
                "hardware": live.get("hardware"),
            }
        )
    return items


async def _orders(client: Client, limit: int) -> list[dict[str, Any]]:
    """Orders under way, running orders first."""
    items: list[dict[str, Any]] = []
    for phase in _OPEN:
        if len(items) < limit:
            items += [
                json_shapes.plain("Order", item) async for item in _items(client.orders, limit - len(items), phase)
            ]
    return [
        {"id": order["id"], "priority": order["priority"], "tasks_total": order["tasks_total"], **order["status"]}
        for order in items
    ]


async def _items(service: Any, limit: int, phase: str = "") -> AsyncIterator[Any]:
    request = common_pb2.ListRequest(phase=phase)
    while limit > 0:
        request.limit = min(PAGE, limit)
        page = await service.page(request)
        for item in page.items:
            yield item
        limit -= len(page.items)
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def totals_line(totals: dict[str, Any]) -> str:
    """The whole system in one line."""
    orders, tasks, targets, rates = (totals.get(name, {}) for name in ("orders", "tasks", "targets", "rates"))
    return (
        f"orders {orders.get('total', 0)} done ({orders.get('failed', 0)} failed, {orders.get('cancelled', 0)} "
        f"cancelled), {totals.get('open_orders', 0)} open; tasks {tasks.get('total', 0)} done, "
        f"{totals.get('queued', 0)} queued, {totals.get('running', 0)} running; targets {targets.get('busy', 0)} busy, "
        f"{targets.get('free', 0)} free of {targets.get('total', 0)}; orders/s {rates.get('orders_10s', 0):g} (10 s) "
        f"{rates.get('orders_1m', 0):g} (1 min), tasks/s {rates.get('tasks_10s', 0):g} {rates.get('tasks_1m', 0):g}"
    )


def _use(item: dict[str, Any]) -> str:
    """The used percentage of every quantity with capacity."""
    parts = []
    for name, left in item["free"].items():
        used = item["used"].get(name, 0)
        if used + left:
            parts.append(f"{name} {round(100 * used / (used + left))}%")
    return ", ".join(parts) or "-"


def _counts(name: str) -> Any:
    return lambda item: str(item["counts"][name])


def _stat(name: str, quantity_of: str = "") -> Any:
    def show(item: dict[str, Any]) -> str:
        value = item["stats"].get(name)
        return "-" if value is None else quantity.show(quantity_of, value) if quantity_of else f"{value:g}"

    return show


TARGETS = (
    TableColumn("NAME", lambda item: item["name"]),
    TableColumn("PHASE", lambda item: item["phase"]),
    TableColumn("USE", _use),
    TableColumn("RUNNING", _stat("running")),
    TableColumn("DONE", _stat("succeeded")),
    TableColumn("FAILED", _stat("failed")),
    TableColumn("TASKS/MIN", _stat("per_minute")),
    TableColumn("LOAD", _stat("load")),
    TableColumn("CPU%", _stat("cpu_percent")),
    TableColumn("MEMORY FREE", _stat("memory_free", "memory")),
    TableColumn("DISK FREE", _stat("disk_free", "memory"), wide=True),
    TableColumn("FREE", lambda item: tables.quantities(item["free"]), wide=True),
    TableColumn("CPU MODEL", lambda item: (item["hardware"] or {}).get("cpu_model") or "-", wide=True),
)
ORDERS = (
    TableColumn("ID", lambda item: item["id"]),
    TableColumn("PRIORITY", lambda item: str(item["priority"])),
    TableColumn("PHASE", lambda item: item["phase"]),
    TableColumn("TASKS", lambda item: str(item["tasks_total"])),
    *(TableColumn(name.upper(), _counts(name)) for name in json_shapes.COUNTS),
    TableColumn("PERCENT", lambda item: "-" if item.get("percent") is None else f"{item['percent']}%"),
)
