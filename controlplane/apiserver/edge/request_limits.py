"""The limits of requests: the bytes of each, and the elements of every list and map.

The limits of admission are repeated here by the fields of the wire, so that they hold before a request is parsed and
converted. A field without a limit in admission has a limit here. Fields of the system (status, tasks, live) are
accepted in the sizes which a client can have read, and ignored or refused later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google.protobuf.descriptor import Descriptor

from controlplane.apiserver.admission import (
    failure_policies,
    fields,
    job_admission,
    packet_admission,
    pod_fields,
    scalepolicy_admission,
    settings_admission,
    target_admission,
)
from controlplane.apiserver.commands.apply import MAX_OBJECTS
from controlplane.apiserver.commands.order_wishes import MAX_WISHES
from controlplane.apiserver.queries.order_explanations import MAX_CHANGES
from controlplane.model import bounds, credential
from controlplane.wire import counting

MAX_REQUEST_BYTES: Final = 4 << 20
# Requests without lists and maps: names, numbers and a page token.
MAX_PLAIN_BYTES: Final = 64 << 10
MAX_BATCH_BYTES: Final = 2 << 20
# gRPC itself refuses larger messages, without our error; sizes in between are refused with our error.
MAX_RECEIVED_BYTES: Final = MAX_REQUEST_BYTES + (64 << 10)

MAX_ORDERS: Final = 1000
# A joblet sends 500 reports, 500 pieces of logs and one heartbeat at most.
MAX_MESSAGES: Final = 2000
_BATCH_FIELDS: Final = 30_000
_LABELS, _QUANTITIES, _NAMES = bounds.MAX_LABELS, bounds.MAX_QUANTITIES, fields.MAX_NAMES
_POLICIES, _RULES = failure_policies.MAX_POLICIES, job_admission.MAX_RULES
_SHOWN: Final = 1000
# Lists of few words: admission names a wrong or repeated word.
_FEW: Final = 16

MAX_ELEMENTS: Final[Mapping[str, int]] = {
    "ApplyRequest.objects": MAX_OBJECTS,
    "ClusterApi.machine": _QUANTITIES,
    "Constraint.values": _RULES,
    "CreateEnrolmentRequest.targets": credential.MOST_TARGETS,
    "CreateTokenRequest.groups": _FEW,
    "CreateTokenRequest.roles": _FEW,
    "CreateTokenRequest.targets": _NAMES,
    "Constraints.hard": _RULES,
    "Constraints.soft": _RULES,
    "EnrolRequest.targets": credential.MOST_TARGETS,
    "FailureMatch.attempts": _POLICIES,
    "FailureMatch.exit_codes": _POLICIES,
    "FailureMatch.reasons": _POLICIES,
    "Heartbeat.capacity": _SHOWN,
    "Heartbeat.stats": _SHOWN,
    "Hello.capacity": _SHOWN,
    "Job.affinity": _RULES,
    "Job.anti_affinity": _RULES,
    "Job.command": job_admission.MAX_ARGUMENTS,
    "Job.drivers": _FEW,
    "Job.env": job_admission.MAX_ENV,
    "Job.failure_policies": _POLICIES,
    "Job.hurt_by": _RULES,
    "Job.image_pull_secrets": _NAMES,
    "Job.labels": _LABELS,
    "Job.prefer": _RULES,
    "Job.resources": _NAMES,
    "Job.tolerations": pod_fields.MAX_TOLERATIONS,
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
    "OrderStatus.expired": packet_admission.MAX_JOBS,
    "OrderStatus.reasons": _SHOWN,
    "Packet.jobs": packet_admission.MAX_JOBS,
    "Packet.labels": _LABELS,
    "Packet.resources": _NAMES,
    "PacketJob.after": packet_admission.MAX_JOBS,
    "PlanRequest.with_targets": MAX_CHANGES,
    "PlanRequest.without_targets": MAX_CHANGES,
    "Quantities.of": _QUANTITIES,
    "Quota.quantities": _QUANTITIES,
    "Resolved.jobs": packet_admission.MAX_JOBS,
    "Resolved.resources": _SHOWN,
    "ResolvedJob.after": packet_admission.MAX_JOBS,
    "Resource.labels": _LABELS,
    "ResourceNames.names": _NAMES,
    "Restriction.images": _NAMES,
    "Restriction.strict_targets": _NAMES,
    "Rule.labels": _LABELS,
    "ScalePolicy.labels": _LABELS,
    "ScalePolicy.sizes": scalepolicy_admission.MAX_SIZES,
    "ScalingStatus.made": scalepolicy_admission.MAX_TARGETS,
    "ScalingStatus.timeline": _SHOWN,
    "Secret.data": _FEW,
    "Secret.labels": _LABELS,
    "Settings.quotas": settings_admission.MAX_QUOTAS,
    "Settings.restrictions": _FEW,
    "SubmitBatchRequest.orders": MAX_ORDERS,
    "Target.labels": _LABELS,
    "Target.windows": target_admission.MAX_WINDOWS,
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


def has_lists(descriptor: Descriptor) -> bool:
    """Whether a message of this type, or a message inside, can hold more than one of anything."""
    return any(
        field.is_repeated or (field.message_type is not None and has_lists(field.message_type))
        for field in descriptor.fields
    )


def most_fields(descriptor: Descriptor) -> int:
    """Of a request of this type. A batch of a joblet is counted on the loop, for as long as its stream lasts."""
    return _BATCH_FIELDS if descriptor.name == "JobletBatch" else counting.MOST_FIELDS


def most_bytes(descriptor: Descriptor) -> int:
    """Of a request of this type."""
    if descriptor.name == "JobletBatch":
        return MAX_BATCH_BYTES
    return MAX_REQUEST_BYTES if has_lists(descriptor) else MAX_PLAIN_BYTES
