"""`cpctl get`, `describe` and `delete`, the same for every kind of object."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import typer

from controlplane.cli import description, drain_command, events_about, kind_views
from controlplane.cli.kind_views import KindView
from controlplane.cli.output import Format
from controlplane.cli.shell import REFUSED, Shell, command
from controlplane.client import Client
from controlplane.client.service_calls import PAGE
from controlplane.model.errors import Invalid, NotFound
from controlplane.wire import json_shapes
from controlplane.wire.v1 import common_pb2, orders_pb2

_KIND = Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(k.plural for k in kind_views.KINDS)}.")]
_ID_HELP = "Name of the object, or its id where the kind has no names."
_NAME = Annotated[str | None, typer.Argument(metavar="ID", help=_ID_HELP)]
_REQUIRED_NAME = Annotated[str, typer.Argument(metavar="ID", help=_ID_HELP)]


def register(app: typer.Typer) -> None:
    command(app, "get")(get)
    command(app, "describe")(describe)
    command(app, "delete")(delete)


async def get(
    shell: Shell,
    kind: _KIND,
    name: _NAME = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Then show every change.")] = False,
    order: Annotated[str, typer.Option(help="Fulfilments: only those of this order.")] = "",
    target: Annotated[str, typer.Option(help="Fulfilments: only those on this target.")] = "",
    about: Annotated[str, typer.Option(metavar="KIND/NAME", help="Events: only those about this object.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="Show at most this many; 0: all.")] = 0,
) -> None:
    """Show all objects of a kind, or a single object."""
    view = kind_views.find(kind)
    if (order or target) and view.name != "Fulfilment":
        raise Invalid("order" if order else "target", f"selects fulfilments, not {view.plural}")
    if about and view.name != "Event":
        raise Invalid("about", f"selects events, not {view.plural}")
    asking: Any = common_pb2.ListRequest(order=order, target=target, limit=limit)
    watching: Any = common_pb2.WatchRequest(name=name or "", order=order, target=target)
    if view.name == "Event":
        asking, watching = events_about.list_request(about, limit), events_about.watch_request(about, name or "")
    async with shell.client() as client:
        if watch:
            await _watch(shell, client, view, watching)
        elif name is not None:
            _show_one(shell, view, await fetch(client, view, name))
        else:
            await _show_all(shell, client, view, asking)


async def describe(shell: Shell, kind: _KIND, name: _NAME = None) -> None:
    """Show an object with all its fields and events, in sections for people."""
    view = kind_views.find(kind)
    if name is None and view.key:
        raise Invalid("id", f"must name one of the {view.plural}")
    async with shell.client() as client:
        item = await fetch(client, view, name or "")
        # Settings have no name of their own.
        events = await events_about.events_about(client, view.name, str(item.get(view.key) or view.plural))
    if shell.out.is_table:
        description.describe(shell.out, view.name, item)
        description.events(shell.out, events)
    elif shell.out.form != Format.NAME:
        shell.out.value({**item, "events": events})
    else:
        _show_one(shell, view, item)


async def delete(
    shell: Shell,
    kind: _KIND,
    name: _REQUIRED_NAME,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete a target although its joblet is connected.")] = False,
) -> int | None:
    """Delete an object. Only a finished order can be deleted: cancel an order under way first."""
    view = kind_views.find(kind)
    if not view.deletable:
        raise Invalid("kind", f"{view.plural} are written by the system and cannot be deleted")
    async with shell.client() as client:
        if view.name == "Target" and not yes and not await drain_command.may_go(shell, client, name):
            return REFUSED
        answer = await view.service(client).delete(name)
    if shell.out.is_table:
        shell.out.text(f"{view.name} {name} deleted")
    elif shell.out.form == Format.NAME:
        shell.out.text(name)
    else:
        shell.out.value({"kind": view.name, view.key: name, "result": "deleted", "revision": answer.revision})
    return None


async def fetch(client: Client, kind: KindView, name: str) -> dict[str, Any]:
    """The JSON of an object; an order has all its tasks."""
    if kind.name == "Settings":
        return json_shapes.plain(kind.name, await client.cluster.settings())
    if kind.name == "Term":
        async for item, _ in _pages(client, kind, common_pb2.ListRequest()):
            if str(item.epoch) == name:
                return json_shapes.plain(kind.name, item)
        raise NotFound(f"term {name} does not exist")
    message = await kind.service(client).get(name)
    item = json_shapes.plain(kind.name, message)
    if kind.name == "Order":
        item["tasks"] = json_shapes.tasks([task async for task in _tasks(client, message)])
    return item


async def _tasks(client: Client, order: orders_pb2.Order) -> AsyncIterator[orders_pb2.Task]:
    for task in order.tasks:
        yield task
    token = order.next_task_token
    while token:
        page = await client.orders.tasks(orders_pb2.ListTasksRequest(id=order.id, limit=PAGE, page_token=token))
        for task in page.items:
            yield task
        token = page.next_page_token


async def _pages(client: Client, kind: KindView, request: Any) -> AsyncIterator[tuple[Any, int]]:
    """Every item with the revision of its page, until `limit` or the end."""
    left = request.limit or None
    while True:
        request.limit = min(PAGE, left or PAGE)
        page = await kind.service(client).page(request)
        if not page.items:
            yield None, page.revision
        for item in page.items:
            yield item, page.revision
        left = None if left is None else left - len(page.items)
        if not page.next_page_token or (left is not None and left <= 0):
            return
        request.page_token = page.next_page_token


async def _show_all(shell: Shell, client: Client, kind: KindView, request: Any) -> None:
    if kind.name == "Settings":
        return _show_one(shell, kind, await fetch(client, kind, ""))
    revision, items = 0, []
    async for message, at in _pages(client, kind, request):
        revision = revision or at
        if message is not None:
            items.append(json_shapes.plain(kind.name, message))
    if shell.out.is_table:
        if items:
            shell.out.rows(kind.columns, items)
        else:
            shell.say(f"no {kind.plural}")
    elif shell.out.form == Format.NAME:
        for item in items:
            shell.out.text(str(item[kind.key]))
    else:
        shell.out.value({"revision": revision, "items": items})
    return None


def _show_one(shell: Shell, kind: KindView, item: dict[str, Any]) -> None:
    if shell.out.is_table:
        shell.out.rows(kind.columns, [item])
    elif shell.out.form == Format.NAME:
        shell.out.text(str(item[kind.key]) if kind.key else kind.plural)
    else:
        shell.out.value(item)


async def _watch(shell: Shell, client: Client, kind: KindView, request: Any) -> None:
    """Shows all present objects, then every change, until interrupted."""
    if kind.name == "Settings":
        raise Invalid("watch", "settings cannot be watched")
    at_start: list[dict[str, Any]] | None = []
    async for event in kind.service(client).watch(request):
        if event.type == "sync":
            if at_start:
                shell.out.rows(kind.columns, at_start)
            at_start = None
            continue
        item = json_shapes.plain(kind.name, event.object)
        if at_start is not None and shell.out.is_table:
            at_start.append(item)
        else:
            _show_event(shell, kind, {"type": event.type, "revision": event.revision, "object": item})


def _show_event(shell: Shell, kind: KindView, event: dict[str, Any]) -> None:
    if shell.out.form == Format.NAME:
        shell.out.text(str(event["object"][kind.key]))
    elif not shell.out.is_table:
        shell.out.line(event)
    elif event["type"] == "delete":
        shell.out.text(f"{event['object'][kind.key]}   deleted")
    else:
        shell.out.rows(kind.columns, [event["object"]], header=not shell.out.has_header)
