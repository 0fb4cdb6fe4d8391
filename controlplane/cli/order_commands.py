"""`cpctl cancel`, `move`, `release`, `pause`, `resume` and `update`: wishes about existing orders and tasks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controlplane.cli import kind_views, tables, wait_for_answer
from controlplane.cli.output import Format
from controlplane.cli.selection import Selection, selection_of
from controlplane.cli.shell import Shell, command
from controlplane.cli.wait_for_answer import TIMEOUT, WAIT, Wish
from controlplane.client import Client
from controlplane.model import quantity
from controlplane.model.errors import Invalid
from controlplane.wire import json_shapes
from controlplane.wire.v1 import orders_pb2

_ORDER = Annotated[str, typer.Argument(metavar="ORDER", help="The order's id.")]
_TASKS = Annotated[str, typer.Argument(metavar="ORDER[/JOB[/INDEX]]", help="An order, a job of an order, or a task.")]


def register(app: typer.Typer) -> None:
    command(app, "cancel")(cancel)
    command(app, "move")(move)
    command(app, "release")(release)
    command(app, "pause")(pause)
    command(app, "resume")(resume)
    command(app, "update")(update)


async def cancel(shell: Shell, tasks: _TASKS, wait: WAIT = False, timeout: TIMEOUT = None) -> int | None:
    """Stop an order, a job or a task: running tasks are killed, waiting tasks never start."""
    chosen, seconds = selection_of(tasks), wait_for_answer.seconds_of(timeout, wait=wait)
    async with shell.client() as client:
        if chosen.job:
            answer = await client.orders.cancel_tasks(_request(chosen))
        else:
            answer = await client.orders.cancel(chosen.order)
        wish = Wish(chosen.order, answer.revision, True, chosen.job, chosen.index)
        return await _answer(shell, client, answer, wish if wait else None, seconds)


async def move(
    shell: Shell,
    task: Annotated[str, typer.Argument(metavar="ORDER/JOB/INDEX", help="The task.")],
    to: Annotated[str, typer.Option(metavar="TARGET", help="Target to move to [default: any other].")] = "",
    wait: WAIT = False,
    timeout: TIMEOUT = None,
) -> int | None:
    """Stop a task and place it on another target, as a new attempt that does not count as a failure."""
    chosen, seconds = selection_of(task), wait_for_answer.seconds_of(timeout, wait=wait)
    if chosen.index is None:
        raise Invalid("task", "must be ORDER/JOB/INDEX: tasks are moved one by one")
    async with shell.client() as client:
        attempt = await _attempt(client, chosen)
        request = orders_pb2.MoveTaskRequest(
            id=chosen.order, job=chosen.job, index=chosen.index, to=to, attempt=attempt
        )
        answer = await client.orders.move_task(request)
        wish = Wish(chosen.order, answer.revision, True, chosen.job, chosen.index, attempt)
        return await _answer(shell, client, answer, wish if wait else None, seconds)


async def release(
    shell: Shell,
    tasks: _TASKS,
    stopped: Annotated[
        bool,
        typer.Option(
            "--stopped",
            help="Declare that a task on a lost target has stopped, after making sure that it has: "
            "its unique resources become free.",
        ),
    ] = False,
    wait: WAIT = False,
    timeout: TIMEOUT = None,
) -> int | None:
    """Let held tasks of an order, a job, or one of them go on."""
    chosen, seconds = selection_of(tasks), wait_for_answer.seconds_of(timeout, wait=wait)
    if stopped and chosen.index is None:
        raise Invalid("tasks", "must be ORDER/JOB/INDEX with --stopped: attempts are confirmed one by one")
    request = _request(chosen)
    request.stopped = stopped
    async with shell.client() as client:
        answer = await client.orders.release_tasks(request)
        wish = Wish(chosen.order, answer.revision, stopped, chosen.job, chosen.index)
        return await _answer(shell, client, answer, wish if wait else None, seconds)


async def pause(shell: Shell, order: _ORDER) -> None:
    """Place no more tasks of an order; running tasks go on."""
    async with shell.client() as client:
        show_order(shell, await client.orders.pause(order))


async def resume(shell: Shell, order: _ORDER) -> None:
    """Continue a paused order."""
    async with shell.client() as client:
        show_order(shell, await client.orders.resume(order))


async def update(
    shell: Shell,
    kind: Annotated[str, typer.Argument(metavar="order", help="Kind to change: order.")],
    name: Annotated[str, typer.Argument(metavar="ID", help="The order's id.")],
    priority: Annotated[int | None, typer.Option(help="1 to 100; 100 goes first.")] = None,
    target: Annotated[
        str | None, typer.Option(metavar="T", help="Place the remaining tasks on this target only; '' for any.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Time since the order was created; '' for none.")
    ] = None,
    not_before: Annotated[str | None, typer.Option(metavar="TIME", help="RFC 3339; '' for now.")] = None,
    resource: Annotated[
        list[str] | None, typer.Option(metavar="R", help="Resource of tasks not placed yet; repeatable; '' for none.")
    ] = None,
    wait: WAIT = False,
    timeout: TIMEOUT = None,
) -> int | None:
    """Change an order under way."""
    if kind_views.find(kind).name != "Order":
        raise Invalid("kind", "must be order; use apply for other kinds")
    seconds = wait_for_answer.seconds_of(timeout, wait=wait)
    request = orders_pb2.UpdateOrderRequest(id=name, priority=priority, not_before=not_before)
    if target is not None:
        request.target_policy = f"strict:{target}" if target else ""
    if deadline is not None:
        request.deadline = float(quantity.parse_duration(deadline, "deadline")) if deadline else 0.0
    if resource:
        request.resources.SetInParent()
        request.resources.names.extend(name for name in resource if name)
    if len(request.ListFields()) == 1:
        raise Invalid("priority", "must be given, or something else to update")
    async with shell.client() as client:
        answer = await client.orders.update(request)
        return await _answer(shell, client, answer, Wish(name, answer.revision) if wait else None, seconds)


def _request(chosen: Selection) -> orders_pb2.TasksRequest:
    return orders_pb2.TasksRequest(id=chosen.order, job=chosen.job, index=chosen.index)


async def _attempt(client: Client, chosen: Selection) -> int | None:
    """The task's current attempt, so that a repeated wish means the same attempt; None for an unknown task."""
    request = orders_pb2.ListTasksRequest(id=chosen.order)
    while True:
        page = await client.orders.tasks(request)
        for task in page.items:
            if (task.job, task.index) == (chosen.job, chosen.index):
                return int(task.attempt)
        if not page.next_page_token:
            return None
        request.page_token = page.next_page_token


async def _answer(
    shell: Shell, client: Client, answer: orders_pb2.OrderResponse, wish: Wish | None, seconds: float | None
) -> int | None:
    code = await wait_for_answer.confirmed(shell, client, wish, seconds) if wish is not None else None
    if wish is not None:
        answer.item.CopyFrom(await client.orders.get(wish.order))
    show_order(shell, answer)
    return code


def show_order(shell: Shell, answer: orders_pb2.OrderResponse) -> None:
    warn(shell, answer)
    show(shell, json_shapes.plain("Order", answer.item))


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
