"""The guard of a term: a leader stops at the deadline of its lease, without its key or lease, or when demoted."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from controlplane.aio.clock import Clock
from controlplane.election.held_leadership import Leadership
from controlplane.election.keeper import LeaseKeeper
from controlplane.election.queue_position import Place, queue_position
from controlplane.election.race import cancel
from controlplane.election.view import View


async def watch_over(leadership: Leadership, keeper: LeaseKeeper, view: View, clock: Clock) -> None:
    """Demotes the leadership when the term is over, then returns."""
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
    while queue_position(view.candidates(), leadership.key, leadership.epoch).place is not Place.OUT:
        await view.changed(view.revision())
    return "key-gone"


async def _lease_lost(keeper: LeaseKeeper) -> str:
    # Other tasks wait for the keeper's future too: cancelling this wait must not cancel the future.
    return await asyncio.shield(keeper.lost)


async def _told(leadership: Leadership) -> str:
    await leadership.lost.wait()
    return leadership.why
