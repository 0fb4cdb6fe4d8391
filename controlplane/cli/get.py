"""`cpctl get`, `describe` and `delete`: one way of asking for every kind of object."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import typer

from controlplane.cli import describing, happened, kinds, shapes, targeting
from controlplane.cli.kinds import Kind
from controlplane.cli.output import Format
from controlplane.cli.shell import REFUSED, Shell, command
from controlplane.client import Client
from controlplane.client.services import PAGE
from controlplane.model.errors import Invalid, NotFound
from controlplane.wire.v1 import common_pb2, orders_pb2

_KIND = Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(k.plural for k in kinds.KINDS)}.")]
_NAME = Annotated[str | None, typer.Argument(metavar="ID", help="Its name, or its id where it has no name.")]
_ONE = Annotated[str, typer.Argument(metavar="ID", help="Its name, or its id where it has no name.")]


def register(app: typer.Typer) -> None:
    command(app, "get")(get)
    command(app, "describe")(describe)
    command(app, "delete")(delete)


async def get(
    shell: Shell,
    kind: _KIND,
    name: _NAME = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on with every change.")] = False,
    order: Annotated[str, typer.Option(help="Fulfilments: only those of this order.")] = "",
    target: Annotated[str, typer.Option(help="Fulfilments: only those on this target.")] = "",
    about: Annotated[str, typer.Option(metavar="KIND/NAME", help="Events: only those about it.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="Stop after that many; 0: all.")] = 0,
) -> None:
    """Show objects: all of a kind, or one."""
    found = kinds.find(kind)
    if (order or target) and found.name != "Fulfilment":
        raise Invalid("order" if order else "target", f"selects fulfilments, not {found.plural}")
    if about and found.name != "Event":
        raise Invalid("about", f"selects events, not {found.plural}")
    asking: Any = common_pb2.ListRequest(order=order, target=target, limit=limit)
    watching: Any = common_pb2.WatchRequest(name=name or "", order=order, target=target)
    if found.name == "Event":
        asking, watching = happened.list_request(about, limit), happened.watch_request(about, name or "")
    async with shell.client() as client:
        if watch:
            await _watch(shell, client, found, watching)
        elif name is not None:
            _show_one(shell, found, await one(client, found, name))
        else:
            await _show_all(shell, client, found, asking)


async def describe(shell: Shell, kind: _KIND, name: _NAME = None) -> None:
    """Tell everything about one object in sections for people."""
    found = kinds.find(kind)
    if name is None and found.key:
        raise Invalid("id", f"must name one of the {found.plural}")
    async with shell.client() as client:
        item = await one(client, found, name or "")
        # Settings have no name of their own.
        events = await happened.events_about(client, found.name, str(item.get(found.key) or found.plural))
    if shell.out.is_table:
        describing.describe(shell.out, found.name, item)
        describing.events(shell.out, events)
    elif shell.out.form != Format.NAME:
        shell.out.value({**item, "events": events})
    else:
        _show_one(shell, found, item)


async def delete(
    shell: Shell,
    kind: _KIND,
    name: _ONE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete a target whose joblet is there too.")] = False,
) -> int | None:
    """Delete one object. A finished order goes; one under way has to be cancelled first."""
    found = kinds.find(kind)
    if not found.deletable:
        raise Invalid("kind", f"{found.plural} are written by the system and cannot be deleted")
    async with shell.client() as client:
        if found.name == "Target" and not yes and not await targeting.may_go(shell, client, name):
            return REFUSED
        answer = await found.service(client).delete(name)
    if shell.out.is_table:
        shell.out.text(f"{found.name} {name} deleted")
    elif shell.out.form == Format.NAME:
        shell.out.text(name)
    else:
        shell.out.value({"kind": found.name, found.key: name, "result": "deleted", "revision": answer.revision})
    return None


async def one(client: Client, kind: Kind, name: str) -> dict[str, Any]:
    """The JSON of one object; an order comes with all of its tasks."""
    if kind.name == "Settings":
        return shapes.plain(kind.name, await client.cluster.settings())
    if kind.name == "Term":
        async for item, _ in _pages(client, kind, common_pb2.ListRequest()):
            if str(item.epoch) == name:
                return shapes.plain(kind.name, item)
        raise NotFound(f"term {name} does not exist")
    message = await kind.service(client).get(name)
    item = shapes.plain(kind.name, message)
    if kind.name == "Order":
        item["tasks"] = shapes.tasks([task async for task in _tasks(client, message)])
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


async def _pages(client: Client, kind: Kind, request: Any) -> AsyncIterator[tuple[Any, int]]:
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


async def _show_all(shell: Shell, client: Client, kind: Kind, request: Any) -> None:
    if kind.name == "Settings":
        return _show_one(shell, kind, await one(client, kind, ""))
    revision, items = 0, []
    async for message, at in _pages(client, kind, request):
        revision = revision or at
        if message is not None:
            items.append(shapes.plain(kind.name, message))
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


def _show_one(shell: Shell, kind: Kind, item: dict[str, Any]) -> None:
    if shell.out.is_table:
        shell.out.rows(kind.columns, [item])
    elif shell.out.form == Format.NAME:
        shell.out.text(str(item[kind.key]) if kind.key else kind.plural)
    else:
        shell.out.value(item)


async def _watch(shell: Shell, client: Client, kind: Kind, request: Any) -> None:
    """What is there first, then every change, until interrupted."""
    if kind.name == "Settings":
        raise Invalid("watch", "settings cannot be watched")
    at_start: list[dict[str, Any]] | None = []
    async for event in kind.service(client).watch(request):
        if event.type == "sync":
            if at_start:
                shell.out.rows(kind.columns, at_start)
            at_start = None
            continue
        item = shapes.plain(kind.name, event.object)
        if at_start is not None and shell.out.is_table:
            at_start.append(item)
        else:
            _show_event(shell, kind, {"type": event.type, "revision": event.revision, "object": item})


def _show_event(shell: Shell, kind: Kind, event: dict[str, Any]) -> None:
    if shell.out.form == Format.NAME:
        shell.out.text(str(event["object"][kind.key]))
    elif not shell.out.is_table:
        shell.out.line(event)
    elif event["type"] == "delete":
        shell.out.text(f"{event['object'][kind.key]}   deleted")
    else:
        shell.out.rows(kind.columns, [event["object"]], header=not shell.out.has_header)
