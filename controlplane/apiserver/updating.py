"""What an update may change of an order under way: each field that it sets, checked like a new order's.

Target policy, times and resources hold for tasks that are not placed yet; what runs goes on as it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from controlplane.apiserver.admission import catalogue, cluster, fields, gang
from controlplane.apiserver.admission import job as jobs
from controlplane.apiserver.admission import order as orders
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.catching_up import admitted
from controlplane.apiserver.changing import Change, not_final
from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.reading import gives_time_limits
from controlplane.cache.ledgers import Ledgers
from controlplane.model import times
from controlplane.model.errors import IllegalTransition, Invalid
from controlplane.model.order import Order
from controlplane.model.quantity import whole
from controlplane.model.resource import Resource


async def change_of(deps: ApiDependencies, request: Any) -> Change:
    """One change for all that the request sets; Refused, with the field, before anything is written."""
    said = await admitted(deps, lambda known: _said(request, known))

    def change(order: Order, phase: str) -> Order:
        changed = replace(order, **said)
        if changed != order:
            not_final(order, phase, "changed")
            _agree(order, changed, deps.ledgers)
        return changed

    return change


def _said(request: Any, known: Catalogue) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if request.HasField("priority"):
        orders.priority(request.priority)
        said["priority"] = request.priority
    if request.HasField("target_policy"):
        jobs.policy(request.target_policy or None, known, "target_policy")
        said["target_policy"] = request.target_policy or None
    if request.HasField("deadline"):
        if request.deadline:
            fields.duration(request.deadline, "deadline")
        said["deadline"] = whole(request.deadline) or None
    if request.HasField("not_before"):
        text = request.not_before
        said["not_before"] = times.show(times.check(text, "not_before")) if text else None
    if request.HasField("resources"):
        said["resources"] = _resources(request.resources.names, known)
    return said


def _resources(names: Sequence[str], known: Catalogue) -> tuple[Resource, ...]:
    """As they are now: an order carries copies."""
    fields.names(names, "resources")
    return tuple(catalogue.resource(known, name, f"resources[{position}]") for position, name in enumerate(names))


def _agree(order: Order, changed: Order, ledgers: Ledgers) -> None:
    """What is changed goes together with what the order's packet resolved to."""
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
        handed = {one.name: one for one in resolved.resources if one.name in part.job.resources}
        cluster.distinct((handed | {one.name: one for one in changed.resources}).values(), "resources")
