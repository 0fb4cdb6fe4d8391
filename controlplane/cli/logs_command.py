"""`cpctl logs`: the output of tasks. A single task's output is shown as bytes, several tasks' as prefixed lines."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import aclosing
from typing import Annotated

import typer

from controlplane.cli.line_buffer import LineBuffer
from controlplane.cli.output import Format
from controlplane.cli.selection import Selection, selection_of
from controlplane.cli.shell import DONE, REFUSED, Shell, command, reader_left
from controlplane.client import Client
from controlplane.client.service_calls import PAGE
from controlplane.model.errors import ControlPlaneError, Invalid, LimitExceeded, NotFound
from controlplane.wire.v1 import logs_pb2, orders_pb2

MOST_FOLLOWED = 50
_TASKS = Annotated[str, typer.Argument(metavar="ORDER[/JOB[/INDEX]]", help="The order, a job of it, or one task.")]
_FOLLOW = Annotated[bool, typer.Option("--follow", "-f", help="Continue until the task has ended, retries included.")]
_PREVIOUS = Annotated[bool, typer.Option("--previous", "-p", help="Show the attempt before the newest.")]
_ATTEMPT = Annotated[int, typer.Option("--attempt", metavar="N", help="Show this attempt [default: the newest].")]
_TAIL = Annotated[
    int, typer.Option("--tail", metavar="LINES", help="Show the last lines of each output [default: all].")
]
_STREAM = Annotated[
    str, typer.Option("--stream", metavar="NAME", help="Show only stdout, or only stderr [default: both].")
]


def register(app: typer.Typer) -> None:
    command(app, "logs")(logs)


async def logs(
    shell: Shell,
    tasks: _TASKS,
    follow: _FOLLOW = False,
    previous: _PREVIOUS = False,
    attempt: _ATTEMPT = 0,
    tail: _TAIL = 0,
    stream: _STREAM = "",
) -> int:
    """Show the output of tasks, which their targets keep. With several tasks each line begins with its task."""
    chosen = selection_of(tasks)
    if attempt < 0:
        raise Invalid("attempt", f"must be the number of an attempt, not {attempt}")
    if tail < 0:
        raise Invalid("tail", f"must be a number of lines, not {tail}")
    question = logs_pb2.LogsRequest(
        id=chosen.order, attempt=attempt, previous=previous, tail_lines=tail, stream=stream, follow=follow
    )
    try:
        async with shell.client() as client:
            return await _read(shell, client, question, await _tasks(client, chosen))
    except BrokenPipeError:
        return reader_left()


async def _read(shell: Shell, client: Client, question: logs_pb2.LogsRequest, selected: list[orders_pb2.Task]) -> int:
    if not selected:
        raise NotFound(f"order {question.id} has no tasks: for a recurring order, ask for its runs", field="order")
    if len(selected) == 1:
        await _show(shell, client, _about(question, selected[0]), alone=True)
        return DONE
    if not question.follow:
        return await _one_by_one(shell, client, question, selected)
    if len(selected) > MOST_FOLLOWED:
        rule = f"at most {MOST_FOLLOWED} tasks are followed at a time, and these are {len(selected)}: choose some"
        raise LimitExceeded(rule, field="order")
    return await _together(shell, client, question, selected)


async def _one_by_one(
    shell: Shell, client: Client, question: logs_pb2.LogsRequest, selected: list[orders_pb2.Task]
) -> int:
    """In the order of the tasks. One that cannot be read does not hide the others."""
    code = DONE
    for task in selected:
        code = max(code, await _try(shell, client, _about(question, task)))
    return code


async def _together(
    shell: Shell, client: Client, question: logs_pb2.LogsRequest, selected: list[orders_pb2.Task]
) -> int:
    try:
        async with asyncio.TaskGroup() as group:
            following = [group.create_task(_try(shell, client, _about(question, task))) for task in selected]
    except* BrokenPipeError:
        raise BrokenPipeError from None
    return max(task.result() for task in following)


async def _try(shell: Shell, client: Client, request: logs_pb2.LogsRequest) -> int:
    try:
        await _show(shell, client, request, alone=False)
    except ControlPlaneError as error:
        shell.say(f"{request.job}/{request.index}: {type(error).__name__}: {error}")
        return REFUSED
    return DONE


async def _show(shell: Shell, client: Client, request: logs_pb2.LogsRequest, *, alone: bool) -> None:
    lines = None if alone and shell.out.is_table else LineBuffer()
    async with aclosing(client.orders.logs(request)) as chunks:
        async for chunk in chunks:
            if chunk.note:
                shell.say(chunk.note)
            elif lines is None:
                _write(chunk.piece.data)
            else:
                for line in lines.take(chunk.attempt, chunk.piece.stream, chunk.piece.data):
                    _print(shell, chunk, line)
    for attempt, stream, line in lines.rest() if lines is not None else ():
        rest = logs_pb2.LogsChunk(job=request.job, index=request.index, attempt=attempt)
        rest.piece.stream = stream
        _print(shell, rest, line)


def _print(shell: Shell, chunk: logs_pb2.LogsChunk, line: bytes) -> None:
    if shell.out.form in (Format.JSON, Format.YAML):
        where = {"job": chunk.job, "index": chunk.index, "attempt": chunk.attempt, "stream": chunk.piece.stream}
        shell.out.line({**where, "line": line.decode(errors="replace")})
    else:
        _write(f"{chunk.job}/{chunk.index}: ".encode() + line + b"\n")


def _write(data: bytes) -> None:
    """Writes bytes at once and unchanged. BrokenPipeError, which ends the command, when the reader is gone."""
    sys.stdout.flush()
    left = memoryview(data)
    while left:
        left = left[os.write(sys.stdout.fileno(), left) :]


async def _tasks(client: Client, chosen: Selection) -> list[orders_pb2.Task]:
    """The selected tasks in their order. A task named by its index is not looked up: the replica answers for it."""
    if chosen.index is not None:
        return [orders_pb2.Task(job=chosen.job, index=chosen.index)]
    request = orders_pb2.ListTasksRequest(id=chosen.order, limit=PAGE)
    selected: list[orders_pb2.Task] = []
    while True:
        page = await client.orders.tasks(request)
        selected += [task for task in page.items if chosen.job in ("", task.job)]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    if chosen.job and not selected:
        raise NotFound(f"order {chosen.order} has no job {chosen.job}", field="job")
    return selected


def _about(question: logs_pb2.LogsRequest, task: orders_pb2.Task) -> logs_pb2.LogsRequest:
    request = logs_pb2.LogsRequest()
    request.CopyFrom(question)
    request.job, request.index = task.job, task.index
    return request
