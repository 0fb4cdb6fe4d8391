"""How large requests may be: the bytes of each, and the elements of every list and map in it.

These are the limits of admission, said once more by the fields of the wire, so that they hold before a request is
parsed and converted. A field that admission does not bound itself has a bound here. What only the system writes
(status, tasks, live) is accepted as far as a client can have read it, and ignored or refused later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from controlplane.apiserver.admission import (
    cluster,
    failure_policies,
    fields,
    job,
    packet,
    scalepolicy,
    settings,
    target,
)
from controlplane.apiserver.applying import MAX_OBJECTS
from controlplane.apiserver.wishing import MAX_WISHES
from controlplane.model import bounds
from controlplane.wire import counting

MAX_REQUEST_BYTES: Final = 4 << 20
# Requests without lists and maps: names, numbers and a page token.
MAX_PLAIN_BYTES: Final = 64 << 10
MAX_BATCH_BYTES: Final = 2 << 20
# gRPC itself refuses what is above, without our words; what lies between is refused with them.
MAX_RECEIVED_BYTES: Final = MAX_REQUEST_BYTES + (64 << 10)

MAX_ORDERS: Final = 1000
MAX_CHANGES: Final = 1000
# A joblet sends 500 reports, 500 pieces of logs and one heartbeat at most.
MAX_MESSAGES: Final = 2000
_BATCH_FIELDS: Final = 30_000
_LABELS, _QUANTITIES, _NAMES = bounds.MAX_LABELS, bounds.MAX_QUANTITIES, fields.MAX_NAMES
_POLICIES, _RULES = failure_policies.MAX_POLICIES, job.MAX_RULES
_SHOWN: Final = 1000
# Lists whose words are few: admission names the one that is wrong or there twice.
_FEW: Final = 16

MAX_ELEMENTS: Final[Mapping[str, int]] = {
    "ApplyRequest.objects": MAX_OBJECTS,
    "ClusterApi.machine": _QUANTITIES,
    "Constraint.values": _RULES,
    "Constraints.hard": _RULES,
    "Constraints.soft": _RULES,
    "FailureMatch.attempts": _POLICIES,
    "FailureMatch.exit_codes": _POLICIES,
    "FailureMatch.reasons": _POLICIES,
    "Heartbeat.capacity": _SHOWN,
    "Heartbeat.stats": _SHOWN,
    "Hello.capacity": _SHOWN,
    "Job.affinity": _RULES,
    "Job.anti_affinity": _RULES,
    "Job.command": job.MAX_ARGUMENTS,
    "Job.drivers": _FEW,
    "Job.env": job.MAX_ENV,
    "Job.failure_policies": _POLICIES,
    "Job.hurt_by": _RULES,
    "Job.image_pull_secrets": _NAMES,
    "Job.labels": _LABELS,
    "Job.prefer": _RULES,
    "Job.resources": _NAMES,
    "Job.tolerations": cluster.MAX_TOLERATIONS,
    "JobletBatch.messages": MAX_MESSAGES,
    "Live.capacity": _SHOWN,
    "Live.stats": _SHOWN,
    "MadeTarget.capacity": _SHOWN,
    "Order.cancel_tasks": MAX_WISHES,
    "Order.failure_policies": _POLICIES,
    "Order.labels": _LABELS,
    "Order.moves": MAX_WISHES,
    "Order.releases": MAX_WISHES,
    "Order.resources": _NAMES,
    "Order.stopped": MAX_WISHES,
    "Order.tasks": _SHOWN,
    "OrderStatus.expired": packet.MAX_JOBS,
    "OrderStatus.reasons": _SHOWN,
    "Packet.jobs": packet.MAX_JOBS,
    "Packet.labels": _LABELS,
    "Packet.resources": _NAMES,
    "PacketJob.after": packet.MAX_JOBS,
    "PlanRequest.with_targets": MAX_CHANGES,
    "PlanRequest.without_targets": MAX_CHANGES,
    "Quantities.of": _QUANTITIES,
    "Quota.quantities": _QUANTITIES,
    "Resolved.jobs": packet.MAX_JOBS,
    "Resolved.resources": _SHOWN,
    "ResolvedJob.after": packet.MAX_JOBS,
    "Resource.labels": _LABELS,
    "ResourceNames.names": _NAMES,
    "Rule.labels": _LABELS,
    "ScalePolicy.labels": _LABELS,
    "ScalePolicy.sizes": scalepolicy.MAX_SIZES,
    "ScalingStatus.made": scalepolicy.MAX_TARGETS,
    "ScalingStatus.timeline": _SHOWN,
    "Secret.data": _FEW,
    "Secret.labels": _LABELS,
    "Settings.quotas": settings.MAX_QUOTAS,
    "SubmitBatchRequest.orders": MAX_ORDERS,
    "Target.labels": _LABELS,
    "Target.windows": target.MAX_WINDOWS,
    "TargetSize.capacity": _QUANTITIES,
    "TargetStatus.free": _SHOWN,
    "TargetStatus.used": _SHOWN,
    "TargetTemplate.capacity": _QUANTITIES,
    "TargetTemplate.labels": _LABELS,
    "Task.artefacts": _SHOWN,
    "Task.avoid": _SHOWN,
    "Tier.targets": _NAMES,
    "Window.days": _FEW,
    "WorkSelector.labels": _LABELS,
}


def has_lists(descriptor: Any) -> bool:
    """Whether a message of this type can hold more than one of anything, itself or in what it holds."""
    return any(
        field.is_repeated or (field.message_type is not None and has_lists(field.message_type))
        for field in descriptor.fields
    )


def most_fields(descriptor: Any) -> int:
    """Of one request of this type. A batch of a joblet is counted on the loop, for as long as its stream lasts."""
    return _BATCH_FIELDS if descriptor.name == "JobletBatch" else counting.MOST_FIELDS


def most_bytes(descriptor: Any) -> int:
    """Of one request of this type."""
    if descriptor.name == "JobletBatch":
        return MAX_BATCH_BYTES
    return MAX_REQUEST_BYTES if has_lists(descriptor) else MAX_PLAIN_BYTES
