"""Waiting for the answer to a wish about an order: from the leader, and from targets that have to stop tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from controlplane.cli import follow
from controlplane.cli.shell import REFUSED, Shell
from controlplane.client import Client
from controlplane.model import quantity
from controlplane.model.errors import Invalid
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.task import ENDED
from controlplane.wire.v1 import common_pb2

WAIT = Annotated[bool, typer.Option("--wait", help="Return when the affected targets have confirmed.")]
TIMEOUT = Annotated[str | None, typer.Option(metavar="DURATION", help="Stop waiting after this time (30s, 2h).")]


@dataclass(frozen=True, slots=True)
class Wish:
    """A wish at a revision of the order; `leaves`: the affected tasks must leave their targets.

    Without `job` all tasks of the order are affected, without `index` all tasks of the job; `attempt` limits a move to
    attempts up to this number.
    """

    order: str
    revision: int
    leaves: bool = False
    job: str = ""
    index: int | None = None
    attempt: int | None = None

    def affects(self, task: Any) -> bool:
        return (
            self.job in ("", task.job)
            and self.index in (None, task.index)
            and (self.attempt is None or task.attempt <= self.attempt)
        )


def seconds_of(timeout: str | None, *, wait: bool) -> float | None:
    if timeout is not None and not wait:
        raise Invalid("timeout", "needs --wait")
    return None if timeout is None else float(quantity.parse_duration(timeout, "timeout"))


async def confirmed(shell: Shell, client: Client, wish: Wish, seconds: float | None) -> int | None:
    """None when the wish is answered, exit code 1 when the time to wait ran out first."""
    try:
        async with asyncio.timeout(seconds), aclosing(follow.looks(client, wish.order, shell.say)) as looks:
            async for item in looks:
                if await _done(client, wish, item):
                    return None
    except TimeoutError:
        shell.say(f"error: Unavailable: order {wish.order} was not confirmed within {seconds:g} s; the wish stays")
    return REFUSED


async def _done(client: Client, wish: Wish, item: dict[str, Any]) -> bool:
    status = item["status"]
    if status["phase"] in FINAL_ORDER:
        return True
    if int(status.get("answered") or 0) < wish.revision:
        return False
    if not wish.leaves:
        return True
    async for fulfilment in _placed(client, wish.order):
        if holds_up(wish, fulfilment):
            return False
    return True


def holds_up(wish: Wish, fulfilment: Any) -> bool:
    """Whether to wait on for a fulfilment: while an affected task runs, or once all its tasks have ended, until it is
    deleted, because only then the order shows every end. Packed tasks end one by one."""
    ended = {(report.job, report.index) for report in fulfilment.observed.tasks if report.phase in ENDED}
    affected = {(task.job, task.index) for task in fulfilment.tasks if wish.affects(task)}
    left = {(task.job, task.index) for task in fulfilment.tasks} - ended
    return bool(affected) and (not left or not affected <= ended)


async def _placed(client: Client, order: str) -> AsyncIterator[Any]:
    token = ""
    while True:
        request = common_pb2.ListRequest(order=order, page_token=token, min_revision=client.revision)
        page = await client.fulfilments.page(request)
        for item in page.items:
            yield item
        token = page.next_page_token
        if not token:
            return
