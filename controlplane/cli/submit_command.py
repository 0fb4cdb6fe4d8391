"""`cpctl run`, `submit` and `apply`: commands that add orders and objects.

Every order gets its identity here, before the first attempt to send it, so that a repeat through another replica is
the same order.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Annotated, Any

import msgspec
import typer

from controlplane.cli import documents, follow, kind_views, order_commands, tables
from controlplane.cli.get_command import fetch
from controlplane.cli.output import Format
from controlplane.cli.shell import NO, REFUSED, Shell, command
from controlplane.client import Client
from controlplane.model import identity, quantity, texts
from controlplane.model.errors import ControlPlaneError, Invalid, Refused
from controlplane.model.job import Job
from controlplane.model.manifest import Manifest
from controlplane.model.order import OrderRequest
from controlplane.model.packet import Packet, PacketJob
from controlplane.wire import convert, status_codes
from controlplane.wire.v1 import cluster_pb2, orders_pb2

_POSITION = re.compile(r"objects\[([0-9]+)\]\.?")
_FILE = typer.Option("--file", "-f", metavar="FILE", help="YAML or JSON; - reads standard input.")
_FILES = typer.Option("--file", "-f", metavar="FILE", help="YAML or JSON, several times; - reads standard input.")
_PRIORITY = Annotated[int | None, typer.Option(help="1 to 100; 100 goes first [default: 50].")]
_TARGET = Annotated[str | None, typer.Option(metavar="T", help="Run on this target only.")]
_TIMEOUT = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Stop waiting after this time (30s, 2h); the order goes on.")
]


def register(app: typer.Typer) -> None:
    command(app, "run")(run)
    command(app, "submit")(submit)
    command(app, "apply")(apply)


async def run(
    shell: Shell,
    argv: Annotated[list[str], typer.Argument(metavar="CMD", help="The command and its arguments.")],
    cpu: Annotated[str | None, typer.Option(help="Cores for each task, such as 2 or 500m [default: 1].")] = None,
    count: Annotated[int, typer.Option(metavar="N", help="Number of tasks that run the command.")] = 1,
    priority: _PRIORITY = None,
    target: _TARGET = None,
    timeout: _TIMEOUT = None,
) -> int | None:
    """Run a command as an order and follow the order to its end; exit code 2 when the order did not succeed."""
    requests = None if cpu is None else {"cpu": quantity.parse(cpu, "cpu")}
    seconds = None if timeout is None else quantity.parse_duration(timeout, "timeout")
    job = Job(command=tuple(argv), requests=requests)
    order = OrderRequest(packet=Packet(jobs=(PacketJob(job=job, count=count),)))
    async with shell.client() as client:
        answer = await client.orders.submit(_wire(shell, client, _override(order, priority, target)))
        order_commands.warn(shell, answer)
        return await _await_end(shell, client, answer.item.id, seconds)


async def submit(
    shell: Shell,
    file: Annotated[str | None, _FILE] = None,
    packet: Annotated[str | None, typer.Option(metavar="P", help="Run the packet of this name.")] = None,
    priority: _PRIORITY = None,
    target: _TARGET = None,
    id: Annotated[
        str, typer.Option(metavar="ULID", help="Identity of the order, which makes a repeat the same order.")
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Follow the order to its end.")] = False,
    timeout: _TIMEOUT = None,
) -> int | None:
    """Submit an order, from a file or of a packet."""
    seconds = None if timeout is None else quantity.parse_duration(timeout, "timeout")
    if timeout is not None and not wait:
        raise Invalid("timeout", "needs --wait")
    order = _override(_order_from(file, packet), priority, target)
    if id:
        order = msgspec.structs.replace(order, id=identity.check(id))
    async with shell.client() as client:
        answer = await client.orders.submit(_wire(shell, client, order))
        if not wait:
            if shell.out.form in (Format.JSON, Format.YAML):
                # The answer to a submit is short, so the whole order is read; a failed read does not undo the submit.
                with suppress(ControlPlaneError):
                    answer.item.CopyFrom(await client.orders.get(answer.item.id))
            order_commands.show_order(shell, answer)
            return None
        order_commands.warn(shell, answer)
        return await _await_end(shell, client, answer.item.id, seconds)


async def apply(shell: Shell, file: Annotated[list[str], _FILES]) -> None:
    """Create or update the objects of all files, all or none; orders are submitted."""
    if file.count("-") > 1:
        raise Invalid("file", "standard input can be read only once")
    read = [document for path in file for document in documents.read(path)]
    async with shell.client() as client:
        request = cluster_pb2.ApplyRequest(objects=[object_of(shell, client, document.object) for document in read])
        try:
            answer = await client.cluster.apply(request)
        except Refused as error:
            raise _in_file(error, read) from None
    show_applied(shell, answer)


def show_applied(shell: Shell, answer: cluster_pb2.ApplyResponse) -> None:
    order_commands.warn(shell, answer)
    items = [{"kind": item.kind, "name": item.name, "id": item.id, "result": item.result} for item in answer.items]
    if shell.out.is_table:
        shell.out.rows(tables.APPLIED, items)
    elif shell.out.form == Format.NAME:
        for item in items:
            shell.out.text(item["name"] or item["id"])
    else:
        shell.out.value(items)


def _order_from(file: str | None, packet: str | None) -> OrderRequest:
    if (file is None) == (packet is None):
        raise Invalid("file", "give either --file or --packet")
    if packet is not None:
        return OrderRequest(packet=packet)
    read = documents.read(str(file))
    if len(read) != 1 or not isinstance(read[0].object, OrderRequest):
        raise Invalid(str(file), "must hold exactly one Order; use apply for other objects")
    return read[0].object


def _override(order: OrderRequest, priority: int | None, target: str | None) -> OrderRequest:
    """The order with the values of the flags instead of the values of the file."""
    changes: dict[str, Any] = {}
    if priority is not None:
        changes["priority"] = priority
    if target is not None:
        changes["target_policy"] = f"strict:{target}"
    return msgspec.structs.replace(order, **changes)


def _wire(shell: Shell, client: Client, order: OrderRequest) -> orders_pb2.Order:
    owner = order.owner or shell.default_owner
    named = msgspec.structs.replace(order, id=order.id or client.mint.make(), owner=owner)
    return convert.to_wire(named, orders_pb2.Order)


def object_of(shell: Shell, client: Client, item: Manifest) -> cluster_pb2.Object:
    if isinstance(item, OrderRequest):
        return cluster_pb2.Object(order=_wire(shell, client, item))
    if hasattr(item, "owner"):
        item = msgspec.structs.replace(item, owner=item.owner or shell.default_owner)
    message = cluster_pb2.Object()
    field = getattr(message, str(type(item).__struct_config__.tag).lower())
    field.SetInParent()
    convert.fill(item, field)
    return message


def _in_file(error: Refused, read: list[documents.Document]) -> ControlPlaneError:
    """The refusal with the name of the document, where the replica named the position in the request."""
    match = _POSITION.match(error.field)
    if match is None or int(match[1]) >= len(read):
        return error
    field = f"{read[int(match[1])].place}: {error.field[match.end() :]}".removesuffix(": ")
    return status_codes.rebuild(type(error).__name__, str(error).replace(error.field, field, 1), field)


async def _await_end(shell: Shell, client: Client, name: str, seconds: float | None) -> int | None:
    """Follows the order: exit code 0 or 2 by its final phase, 1 when the time to wait ran out first."""
    shell.say(f"order {name}")
    try:
        async with asyncio.timeout(seconds):
            ended = await follow.to_its_end(client, name, shell.say)
            item = await fetch(client, kind_views.find("order"), name)
    except TimeoutError:
        shell.say(f"error: Unavailable: order {name} did not end within {seconds} s; it goes on")
        return REFUSED
    except asyncio.CancelledError:
        shell.say(f"order {name} goes on; stop it with: cpctl cancel {name}")
        raise
    order_commands.show(shell, item)
    if not follow.succeeded(ended) and shell.out.is_table:
        _say_failures(shell, item)
    return None if follow.succeeded(ended) else NO


def _say_failures(shell: Shell, item: dict[str, Any]) -> None:
    for task in [task for task in item.get("tasks", []) if task["phase"] == "Failed"][:10]:
        code = "" if task["exit_code"] is None else f", exit code {task['exit_code']}"
        message = f": {texts.one_line(task['message'])}" if task.get("message") else ""
        where = f" on {task['target']}" if task.get("target") else ""
        shell.say(f"task {task['job']}/{task['index']}{where}: {task['reason'] or 'failed'}{code}{message}")
