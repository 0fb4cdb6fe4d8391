"""Releasing a fulfilment: the end on record, keys and claims gone, in a single transaction.

The transaction compares the revision of the report behind the decision, so that no later report is thrown away unread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from controlplane.cache.ledger import LiveFulfilment, OrderLedger
from controlplane.controller_manager import attempt_decisions
from controlplane.model import slimming
from controlplane.model.fulfilment import Ended, Fulfilment, ObservedTask, TaskStop
from controlplane.model.task import AttemptPhase
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, delete, mod_is, put

# The largest record: all other parts of the transaction are small.
MOST_BYTES = 512 << 10


class ReleasedAttempt(NamedTuple):
    """The end of the fulfilment, and the write that records the end and releases claims."""

    ended: Ended
    item: Item


def ended_by_report(live: LiveFulfilment, ledger: OrderLedger | None, *, epoch: int, now: str) -> ReleasedAttempt:
    """The joblet reported the end: each task ends as reported, a stopped task with the reason of the stop.

    Without a ledger the order is final or gone, and no task is tried again.
    """
    assert live.observed is not None
    tasks = tuple(_stopped(task, live.fulfilment, ledger) for task in live.observed.tasks)
    return _release(live, tasks, ledger, cancelled=ledger is None, epoch=epoch, now=now)


def _stopped(task: ObservedTask, wanted: Fulfilment, ledger: OrderLedger | None) -> ObservedTask:
    if task.phase != AttemptPhase.CANCELLED or not wanted.why_stop(task.job, task.index):
        return task
    return msgspec.structs.replace(task, reason=attempt_decisions.why_stopped(task, wanted, ledger))


def ended_by_loss(
    live: LiveFulfilment,
    reason: str,
    *,
    cancelled: bool,
    epoch: int,
    now: str,
    ledger: OrderLedger | None = None,
) -> ReleasedAttempt:
    """The target is lost: reported ends stay, all other tasks end with the reason.

    Without the order's ledger the default policies decide.
    """
    reported = {(task.job, task.index): task for task in live.observed.tasks} if live.observed else {}
    failed = AttemptPhase.FAILED
    tasks = tuple(
        seen if (seen := reported.get((task.job, task.index))) is not None and seen.finished
        else ObservedTask(job=task.job, index=task.index, attempt=task.attempt, phase=failed, reason=reason)
        for task in live.fulfilment.tasks
    )  # fmt: skip
    return _release(live, tasks, ledger, cancelled=cancelled, epoch=epoch, now=now)


def _release(
    live: LiveFulfilment,
    tasks: tuple[ObservedTask, ...],
    ledger: OrderLedger | None,
    *,
    epoch: int,
    now: str,
    cancelled: bool = False,
) -> ReleasedAttempt:
    fulfilment = live.fulfilment
    target = fulfilment.target
    ended = Ended(
        id=fulfilment.id,
        order=fulfilment.order,
        target=fulfilment.target,
        epoch=epoch,
        cycle=fulfilment.cycle,
        tasks=tuple(attempt_decisions.end(task, ledger, target=target, now=now, cancelled=cancelled) for task in tasks),
        ended=now,
    )
    ended, value = _fitting(ended)
    place = keys.desired(fulfilment.target, fulfilment.id)
    report = keys.observed(fulfilment.target, fulfilment.id)
    item = Item(
        compares=(mod_is(report, live.observed_revision), mod_is(place, live.revision)),
        then=(
            put(keys.ended(fulfilment.order, fulfilment.id), value),
            delete(place),
            *((delete(report),) if live.observed_revision else ()),
            *(delete(keys.claim(name)) for name in fulfilment.holds),
        ),
    )
    return ReleasedAttempt(ended, item)


def _fitting(ended: Ended) -> tuple[Ended, bytes]:
    """The record and its value, with texts cut if the value were too large to be written: every attempt ends."""
    value = codec.encode(ended)
    if len(value) > MOST_BYTES:
        ended = msgspec.structs.replace(ended, tasks=slimming.slim(ended.tasks, MOST_BYTES // 2))
        value = codec.encode(ended)
    if len(value) > MOST_BYTES:
        ended = msgspec.structs.replace(ended, tasks=slimming.shorten(ended.tasks))
        value = codec.encode(ended)
    return ended, value


def stop_some(fulfilment: Fulfilment, stops: Sequence[TaskStop], *, epoch: int, revision: int) -> Item:
    """Asks the joblet to stop these tasks, too; the other tasks of the fulfilment go on."""
    wanted = msgspec.structs.replace(fulfilment, epoch=epoch, stop=(*fulfilment.stop, *stops))
    place = keys.desired(fulfilment.target, fulfilment.id)
    return Item(compares=(mod_is(place, revision),), then=(put(place, codec.encode(wanted)),))


def stop(fulfilment: Fulfilment, reason: str, *, epoch: int, revision: int) -> Item:
    """Asks the joblet to stop; the key goes only after the end was reported or the target is lost."""
    wanted = msgspec.structs.replace(fulfilment, epoch=epoch, want="stop", reason=reason)
    place = keys.desired(fulfilment.target, fulfilment.id)
    return Item(compares=(mod_is(place, revision),), then=(put(place, codec.encode(wanted)),))
