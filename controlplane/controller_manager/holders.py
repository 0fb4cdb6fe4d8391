"""Holders of unique resources on a lost target where nothing kills them: when their claims may go to others. Pure.

A pod runs on while its joblet is silent. Until its end is certain it keeps its place and its claims: until its end was
reported, until its time limit has passed, or until a person says that it is over. The time limit of a pod counts from
when it began to run: one that was reported as running began before its joblet fell silent, one that was only starting
may begin at any time, so that no time is enough for it. What was never reported never started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controlplane.cache.ledger import LiveFulfilment, OrderLedger
from controlplane.controller_manager.health import Sight
from controlplane.model import silence
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.order import Order
from controlplane.model.quantity import Number

STARTING = "Starting"


def kept(placed: Sequence[tuple[LiveFulfilment, OrderLedger | None]], sight: Sight) -> Mapping[str, float | None]:
    """What stays with the lost target, each with the seconds until it need not; None: no time is enough."""
    if silence.kills_holders(sight.driver):
        return {}
    waits = {
        live.fulfilment.id: frees_in(live, ledger, silent=sight.silent, grace=sight.grace) for live, ledger in placed
    }
    return {name: seconds for name, seconds in waits.items() if seconds is None or seconds > 0}


def frees_in(live: LiveFulfilment, ledger: OrderLedger | None, *, silent: float, grace: float) -> float | None:
    """Seconds until nothing of it can hold anything any more; not above zero when that is now."""
    fulfilment = live.fulfilment
    if not fulfilment.holds or not live.observed_revision:
        return 0.0
    if ledger is not None and is_over(ledger.order, fulfilment):
        return 0.0
    limit = limit_of(fulfilment)
    began = live.observed is not None and any(task.phase != STARTING for task in live.observed.tasks)
    if limit is None or not began:
        return None
    return float(limit) + max(grace, silence.POD_STOP_SECONDS) - silent


def is_over(order: Order, fulfilment: Fulfilment) -> bool:
    """Whether a person said of each of its attempts that nothing of it runs any more."""
    if not order.stopped:
        return False
    said = {(one.job, one.index, one.attempt) for one in order.stopped}
    return all((task.job, task.index, task.attempt) in said for task in fulfilment.tasks)


def limit_of(fulfilment: Fulfilment) -> Number | None:
    """For how long its pod may run; None when a task of it may run for ever."""
    limits = [
        spec.time_limit if (spec := fulfilment.jobs.get(task.job)) is not None else None for task in fulfilment.tasks
    ]
    known = [limit for limit in limits if limit is not None]
    return max(known) if known and len(known) == len(limits) else None
