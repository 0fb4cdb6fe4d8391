"""The update of an order under way: the fields which a user may set, checked like those of a new order.

Target policy, times and resources hold for tasks not placed yet; running tasks go on unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from controlplane.apiserver.admission import catalogue, fields, gang, pod_fields, restrictions
from controlplane.apiserver.admission import job_admission as jobs
from controlplane.apiserver.admission import order_admission as orders
from controlplane.apiserver.admission.admit_caught_up import admit_caught_up, gives_time_limits
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.api_ports import Reads
from controlplane.apiserver.commands.order_wishes import OrderChange, not_final
from controlplane.cache.ledgers import Ledgers
from controlplane.model import times
from controlplane.model.access import Subject
from controlplane.model.errors import IllegalTransition, Invalid
from controlplane.model.order import Order
from controlplane.model.quantity import whole
from controlplane.model.resource import Resource


class OrderUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The fields set by an update; '' and 0 clear a field."""

    priority: int | UnsetType = UNSET
    target_policy: str | UnsetType = UNSET
    deadline: float | UnsetType = UNSET
    not_before: str | UnsetType = UNSET
    resources: tuple[str, ...] | UnsetType = UNSET


async def change_of(reads: Reads, subject: Subject, update: OrderUpdate) -> OrderChange:
    """One change for all fields of the update; Refused, with the field, before anything is written."""
    fields_set = await admit_caught_up(reads, subject, lambda existing: _admitted(update, existing, subject))

    def change(order: Order, phase: str) -> Order:
        changed = replace(order, **fields_set)
        if changed != order:
            not_final(order, phase, "changed")
            _agree(order, changed, reads.ledgers)
        return changed

    return change


def _admitted(update: OrderUpdate, existing: Catalogue, subject: Subject) -> dict[str, Any]:
    """The fields of the order set by the update, by name."""
    fields_set: dict[str, Any] = {}
    restriction = restrictions.restriction_of(subject, existing.settings())
    if update.priority is not UNSET:
        orders.priority(update.priority)
        restrictions.check_priority(restriction, update.priority)
        fields_set["priority"] = update.priority
    if update.target_policy is not UNSET:
        jobs.policy(update.target_policy or None, existing, "target_policy")
        restrictions.check_policy(restriction, update.target_policy or "any")
        fields_set["target_policy"] = update.target_policy or None
    if update.deadline is not UNSET:
        if update.deadline:
            fields.duration(update.deadline, "deadline")
        fields_set["deadline"] = whole(update.deadline) or None
    if update.not_before is not UNSET:
        text = update.not_before
        fields_set["not_before"] = times.show(times.check(text, "not_before")) if text else None
    if update.resources is not UNSET:
        fields_set["resources"] = _resources(update.resources, existing)
    return fields_set


def _resources(names: Sequence[str], existing: Catalogue) -> tuple[Resource, ...]:
    """The resources as stored now: an order carries copies."""
    fields.names(names, "resources")
    return tuple(catalogue.resource(existing, name, f"resources[{position}]") for position, name in enumerate(names))


def _agree(order: Order, changed: Order, ledgers: Ledgers) -> None:
    """The changed fields agree with the order's resolved packet."""
    resolved = ledgers.resolved(order)
    if changed.deadline != order.deadline:
        ledger = ledgers.orders.get(order.id)
        if ledger is not None and ledger.expired:
            late = f"tasks of order {order.id} failed by its deadline already, which cannot be changed any more"
            raise IllegalTransition(late, field="deadline")
    for part in resolved.jobs:
        target = fields.target_of(changed.target_policy or part.job.target_policy or "any", "target_policy")
        if target is not None and part.job.spread == "order" and part.count > 1:
            rule = f"{part.count} tasks of job {part.job.name!r} must be on different targets, not all on {target!r}"
            raise Invalid("target_policy", rule)
    unique = {resource.name for resource in changed.resources if resource.unique}
    if unique and resolved.gang and resolved.task_count() > 1:
        raise Invalid("resources", f"{min(unique)!r} is unique: only one task of a gang could hold it")
    if changed.resources != order.resources:
        limited = gives_time_limits(ledgers.cache.snapshot)
        gang.fits_with(resolved, changed.resources, changed.owner, "resources", limited=limited)
    own = {resource.name for resource in resolved.resources if resource.unique}
    for part in resolved.jobs:
        jobs.unique_limit(len(unique | own.intersection(part.job.resources)), "resources")
        handed = {resource.name: resource for resource in resolved.resources if resource.name in part.job.resources}
        handed |= {resource.name: resource for resource in changed.resources}
        pod_fields.distinct(handed.values(), "resources")
