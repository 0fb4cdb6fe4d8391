"""Holders of unique resources on a lost target without a killer: when their claims may go to others. Pure.

A pod runs on while its joblet is silent. The pod keeps its place and its claims until its end is certain: until the end
was reported, until the time limit has passed, or until a person says that the attempt is over. The time limit counts
from the start of the pod: a pod reported as running began before the joblet fell silent; a pod that was only starting
may begin at any time, so that no time is enough. An attempt that was never reported never started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controlplane.cache.ledger import LiveFulfilment, OrderLedger
from controlplane.controller_manager.target_phase import TargetState
from controlplane.model import silence
from controlplane.model.driver_traits import traits_of
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.order import Order
from controlplane.model.quantity import Number
from controlplane.model.task import AttemptPhase


def kept(placed: Sequence[tuple[LiveFulfilment, OrderLedger | None]], state: TargetState) -> Mapping[str, float | None]:
    """Fulfilments that stay with the lost target, each with the seconds until it may go; None: never by time."""
    if traits_of(state.driver).kills_holders:
        return {}
    waits = {
        live.fulfilment.id: frees_in(live, ledger, silent=state.silent, grace=state.grace) for live, ledger in placed
    }
    return {name: seconds for name, seconds in waits.items() if seconds is None or seconds > 0}


def frees_in(live: LiveFulfilment, ledger: OrderLedger | None, *, silent: float, grace: float) -> float | None:
    """Seconds until no attempt of the fulfilment can hold a resource any more; 0 or less means now."""
    fulfilment = live.fulfilment
    if not fulfilment.holds or not live.observed_revision:
        return 0.0
    if ledger is not None and is_over(ledger.order, fulfilment):
        return 0.0
    limit = limit_of(fulfilment)
    began = live.observed is not None and any(task.phase != AttemptPhase.STARTING for task in live.observed.tasks)
    if limit is None or not began:
        return None
    return float(limit) + max(grace, silence.POD_STOP_SECONDS) - silent


def is_over(order: Order, fulfilment: Fulfilment) -> bool:
    """Whether a person said of each attempt that it is over."""
    if not order.stopped:
        return False
    said = {(wish.job, wish.index, wish.attempt) for wish in order.stopped}
    return all((task.job, task.index, task.attempt) in said for task in fulfilment.tasks)


def limit_of(fulfilment: Fulfilment) -> Number | None:
    """The longest run of the pod; None when a task has no time limit."""
    limits = [
        spec.time_limit if (spec := fulfilment.jobs.get(task.job)) is not None else None for task in fulfilment.tasks
    ]
    finite = [limit for limit in limits if limit is not None]
    return max(finite) if finite and len(finite) == len(limits) else None
