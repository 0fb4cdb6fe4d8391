"""Releasing a fulfilment: its end on record, its keys and claims gone, in one transaction.

The transaction compares the inventory revision that the release was decided on, so that a report that arrives in
between is never thrown away unread.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from controlplane.cache.ledger import LiveFulfilment
from controlplane.model import failure
from controlplane.model.fulfilment import Ended, Fulfilment, ObservedTask
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, delete, mod_is, put


class Release(NamedTuple):
    """How the fulfilment ended, and the write that says so and gives back what it held."""

    ended: Ended
    item: Item


def ended_by_report(live: LiveFulfilment, *, cancelled: bool, epoch: int, now: str) -> Release:
    """The joblet reported the end: each task ends as observed, a stopped one for the reason that the stop gave."""
    assert live.observed is not None
    tasks = tuple(_stopped(task, live.fulfilment) for task in live.observed.tasks)
    return _release(live, tasks, cancelled=cancelled, epoch=epoch, now=now)


def _stopped(task: ObservedTask, wanted: Fulfilment) -> ObservedTask:
    """Why it was stopped is the leader's to know, whatever the joblet made of it."""
    if task.phase != "Cancelled" or wanted.want != "stop" or not wanted.reason:
        return task
    return msgspec.structs.replace(task, reason=wanted.reason)


def ended_by_loss(live: LiveFulfilment, reason: str, *, cancelled: bool, epoch: int, now: str) -> Release:
    """The target is lost: what was reported as ended stays so, the rest ends with the reason."""
    reported = {(task.job, task.index): task for task in live.observed.tasks} if live.observed else {}
    tasks = tuple(
        seen if (seen := reported.get((task.job, task.index))) is not None and seen.finished
        else ObservedTask(job=task.job, index=task.index, attempt=task.attempt, phase="Failed", reason=reason)
        for task in live.fulfilment.tasks
    )  # fmt: skip
    return _release(live, tasks, cancelled=cancelled, epoch=epoch, now=now)


def _release(
    live: LiveFulfilment, tasks: tuple[ObservedTask, ...], *, cancelled: bool, epoch: int, now: str
) -> Release:
    fulfilment = live.fulfilment
    ended = Ended(
        id=fulfilment.id,
        order=fulfilment.order,
        target=fulfilment.target,
        epoch=epoch,
        cycle=fulfilment.cycle,
        tasks=tuple(failure.end(task, cancelled=cancelled, finished=now) for task in tasks),
        ended=now,
    )
    place = keys.desired(fulfilment.target, fulfilment.id)
    report = keys.observed(fulfilment.target, fulfilment.id)
    item = Item(
        compares=(mod_is(report, live.observed_revision), mod_is(place, live.revision)),
        then=(
            put(keys.ended(fulfilment.order, fulfilment.id), codec.encode(ended)),
            delete(place),
            *((delete(report),) if live.observed_revision else ()),
            *(delete(keys.claim(name)) for name in fulfilment.holds),
        ),
    )
    return Release(ended, item)


def stop(fulfilment: Fulfilment, reason: str, *, epoch: int, revision: int) -> Item:
    """Asks the joblet to stop it; the key goes only after the end was reported or the target is lost."""
    wanted = msgspec.structs.replace(fulfilment, epoch=epoch, want="stop", reason=reason)
    place = keys.desired(fulfilment.target, fulfilment.id)
    return Item(compares=(mod_is(place, revision),), then=(put(place, codec.encode(wanted)),))
