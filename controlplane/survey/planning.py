"""Plan: where and when the tasks of an order would be placed, in the present world or in a changed world.

A plan runs the code of the cycle on a snapshot and writes no result. Where not all tasks can be placed at once, the
plan lets time pass: running work ends at the time limit, waiting work is placed as in cycles, until the order is placed
or no more work can end. A job which depends on other jobs is planned for the time when the other jobs are over. An
order which preempts stops the same work as in a cycle, and the plan names the stopped work.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

import msgspec

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.engine.coming import apart_in, known_of
from controlplane.engine.forecast import SUPPOSED, Forecast
from controlplane.engine.guarding import decide_guarded
from controlplane.engine.room import Room
from controlplane.engine.target_columns import TargetColumns
from controlplane.engine.world import TargetRow, World, facts_of, priority_of
from controlplane.model import times
from controlplane.model.dependencies import Dependencies
from controlplane.model.explanation import GroupExplanation, Plan, PlannedEviction, PlannedPlacement
from controlplane.model.isolation import Casualties
from controlplane.model.order import Order
from controlplane.model.target import Target
from controlplane.survey.explaining import conclusion, groups_of, survey

_PLENTY = 1 << 40
_MOST_NAMED = 3
# A forecast counts the stop of preempted work as immediate, so a start within this time counts as now.
_NOW_SECONDS = 0.5


def plan(
    ledgers: Ledgers, order: Order, now: datetime, *, added: Sequence[Target] = (), removed: Collection[str] = ()
) -> Plan:
    """`added` targets count as empty and ready, and replace targets of the same name; `removed` targets are left
    out."""
    ledger = OrderLedger.open(msgspec.structs.replace(order, not_before=None), 0, ledgers.resolved(order))
    ward = Casualties()
    # Rounded as in the record of a cycle.
    now = times.parse(times.show(now), "now")
    backlog, seen = survey(ledgers, now, ward, preempting=order.preempts)
    world = changed(seen, added, removed)
    world = replace(
        world,
        settings=msgspec.structs.replace(world.settings, cycle_budget=_PLENTY),
        priorities={**world.priorities, order.id: priority_of(ledger, world.book, now)} if world.priorities else {},
    )
    # Other orders and targets which raise are left out, as cycles leave them out; an error of the planned order itself
    # is raised.
    world, _ = decide_guarded(world, backlog.queues, ward)
    backlog.leave_out(ward.orders)
    world = replace(world, spread={**apart_in(ledgers, ward.orders), **world.spread})
    ledger.depends = _foreseen(ledger, world)
    wait = _until(order.not_before, now)
    forecast = Forecast(world, backlog.queues(), order.id, known_of(ledgers, world, ward.orders, ledger, wait))
    placements = tuple(forecast.placements())
    placed = sum(placement.count for placement in placements)
    at_once = sum(placement.count for placement in placements if placement.start_in_seconds < wait + _NOW_SECONDS)
    groups = () if at_once == order.tasks_total else tuple(groups_of(Room(world), ledger, times.show(now)))
    evictions = tuple(
        PlannedEviction(fulfilment=one.fulfilment, order=one.order, target=one.target)
        for one in forecast.evictions
        if not one.fulfilment.startswith(SUPPOSED)
    )
    return Plan(
        placeable=placed == order.tasks_total,
        revision=world.revision,
        conclusion=_conclusion(ledger, placements, groups, evictions, times.show(now)),
        placements=placements,
        groups=groups,
        evictions=evictions,
    )


def _foreseen(ledger: OrderLedger, world: World) -> Dependencies | None:
    """The dependencies between jobs for the plan. A job which depends on a job of unknown duration is planned as if the
    dependency were met."""
    if ledger.depends is None:
        return None
    always = bool(world.targets) and all(row.default_time_limit is not None for row in world.targets)
    depends, unknown = ledger.depends, set[str]()
    for resolved in ledger.resolved.jobs:
        if resolved.job.time_limit is None and not always:
            unknown.update(depends.downstream(resolved.job.name, unknown))
    return replace(depends, after={name: before for name, before in depends.after.items() if name not in unknown})


def _until(not_before: str | None, now: datetime) -> float:
    return max(0.0, (times.parse(not_before, "not_before") - now).total_seconds()) if not_before else 0


def _conclusion(
    ledger: OrderLedger,
    placements: Sequence[PlannedPlacement],
    groups: Sequence[GroupExplanation],
    evictions: Sequence[PlannedEviction],
    now: str,
) -> str:
    total = ledger.order.tasks_total
    placed = sum(placement.count for placement in placements)
    if placed < total and not placed:
        return conclusion(ledger, groups, (), 0, now)
    last = max((placement.start_in_seconds for placement in placements), default=0)
    targets = len({placement.target for placement in placements})
    where = f"on {targets} {'target' if targets == 1 else 'targets'}{_after(evictions)}"
    if placed < total:
        return f"{placed} of {total} tasks would go {where}; the rest: {conclusion(ledger, groups, (), 0, now)}"
    if last < _NOW_SECONDS:
        return f"All {total} tasks would start now {where}." if total > 1 else f"It would start now {where}."
    return f"All would start {where}, the last in {last:.0f} seconds at the latest."


def _after(evictions: Sequence[PlannedEviction]) -> str:
    if not evictions:
        return ""
    orders = list(dict.fromkeys(one.order for one in evictions))
    named = ", ".join(orders[:_MOST_NAMED]) + (
        f" and {len(orders) - _MOST_NAMED} others" if orders[_MOST_NAMED:] else ""
    )
    what = "1 fulfilment is" if len(evictions) == 1 else f"{len(evictions)} fulfilments are"
    return f" once {what} stopped (of {named})"


def changed(world: World, added: Sequence[Target], removed: Collection[str]) -> World:
    """The world with other targets."""
    new = {target.name: _empty(target) for target in added}
    rows = [row for row in world.targets if row.name not in removed and row.name not in new]
    rows = sorted([*rows, *new.values()], key=lambda row: row.name)
    return replace(world, targets=tuple(rows), floor=TargetColumns(tuple(row.facts for row in rows)))


def _empty(target: Target) -> TargetRow:
    capacity = dict(target.capacity or {})
    return TargetRow(
        facts=facts_of(target, None, capacity),
        ready=not target.cordoned and not target.drain,
        phase="Ready",
        capacity=capacity,
        free=capacity,
        slots=target.max_fulfilments,
        windows=target.windows,
        default_time_limit=target.default_time_limit,
    )
