"""When a leader stops believing in itself: at its lease's deadline, without its key, or when told so."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from controlplane.aio.clock import Clock
from controlplane.election.keeper import LeaseKeeper
from controlplane.election.leadership import Leadership
from controlplane.election.race import cancel
from controlplane.election.standing import Place, standing
from controlplane.election.view import View


async def watch_over(leadership: Leadership, keeper: LeaseKeeper, view: View, clock: Clock) -> None:
    """Returns when the term is over, and has said so to the leadership."""
    watches: tuple[Coroutine[Any, Any, str], ...] = (
        _deadline(leadership, clock),
        key_gone(leadership, view),
        _lease_lost(keeper),
        _told(leadership),
    )
    tasks = [asyncio.create_task(watch) for watch in watches]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        leadership.demote(done.pop().result())
    finally:
        for task in tasks:
            await cancel(task)


async def _deadline(leadership: Leadership, clock: Clock) -> str:
    while (left := leadership.deadline() - clock.monotonic()) > 0:
        await clock.sleep(left)
    return "deadline"


async def key_gone(leadership: Leadership, view: View) -> str:
    while standing(view.candidates(), leadership.key, leadership.epoch).place is not Place.OUT:
        await view.changed(view.revision())
    return "key-gone"


async def _lease_lost(keeper: LeaseKeeper) -> str:
    # A future of the keeper, which others wait for too: cancelling this wait must not cancel it.
    return await asyncio.shield(keeper.lost)


async def _told(leadership: Leadership) -> str:
    await leadership.lost.wait()
    return leadership.why
