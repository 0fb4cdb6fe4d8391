"""The rules of an order, and the order built from a request."""

from __future__ import annotations

import msgspec

from controlplane.apiserver import authorisation
from controlplane.apiserver.admission import failure_policies, fields, gang
from controlplane.apiserver.admission import job_admission as jobs
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.field_warnings import FieldWarning
from controlplane.apiserver.admission.resolve import FIELD, Resolution
from controlplane.model import schedule, times
from controlplane.model.access import Subject
from controlplane.model.errors import Invalid
from controlplane.model.order import Order, OrderRequest, content_digest
from controlplane.model.packet import Packet
from controlplane.model.schedule import Schedule
from controlplane.model.target import Target

DEFAULT_PRIORITY = 50
DEFAULT_OWNER = "anonymous"
ORCHESTRATIONS = ("push", "pull")

_canonical = msgspec.json.Encoder(order="sorted")


def digest_of(request: OrderRequest, subject: Subject) -> str:
    """Names the content of the request as the subject sent it, apart from the identity of the order."""
    content = _canonical.encode(msgspec.structs.replace(request, id=""))
    return content_digest(f"{subject.name}\n".encode() + content if subject.name else content)


def check(request: OrderRequest, existing: Catalogue) -> None:
    """The rules of the request itself; its packet is checked by its resolution."""
    if request.priority is not None:
        priority(request.priority)
    if isinstance(request.packet, str):
        if not request.packet:
            raise Invalid("packet", "must be the name of a packet or the packet itself")
        fields.name(request.packet, "packet")
    elif request.packet.name:
        fields.name(request.packet.name, "packet.name")
    fields.line(request.owner, "owner")
    fields.line(request.creator, "creator")
    if request.labels:
        fields.labels(request.labels, "labels")
    jobs.policy(request.target_policy, existing, "target_policy")
    if request.deadline is not None:
        fields.duration(request.deadline, "deadline")
    if request.not_before is not None:
        times.check(request.not_before, "not_before")
    if request.orchestration is not None:
        fields.one_of(request.orchestration, ORCHESTRATIONS, "orchestration")
    failure_policies.check(request.failure_policies, "failure_policies")
    if request.schedule is not None:
        schedule.check(request.schedule)
        schedule.check_interval(request.schedule)


def agree(request: OrderRequest, resolution: Resolution, *, limited: bool = False) -> None:
    """The request agrees with its packet. `limited`: a target gives a time limit to its tasks."""
    for where in resolution.where:
        target = fields.target_of(request.target_policy or where.policy, "target_policy")
        if target is not None and where.spread_tasks > 1:
            rule = f"asks for {where.spread_tasks} tasks on different targets, but only {target!r} is allowed"
            raise Invalid(f"{where.path}.spread", rule)
    if resolution.gang_bytes:
        owner = request.owner or DEFAULT_OWNER
        gang.fits(resolution.gang_bytes, resolution.tasks_total, owner, FIELD, limited=limited)


def doubts(request: OrderRequest, resolution: Resolution, existing: Catalogue) -> list[FieldWarning]:
    """Warnings by today's targets, which may change."""
    warnings = []
    for where in resolution.where:
        name = fields.target_of(request.target_policy or where.policy, "target_policy")
        target = existing.find(Target, name) if name is not None and where.region else None
        if target is not None and target.region != where.region:
            message = f"only {target.name!r} is allowed, whose region is {target.region or 'not set'}"
            warnings.append(FieldWarning(f"{where.path}.region", message))
    return warnings


def priority(value: int, field: str = "priority") -> None:
    fields.number(value, field, least=1, most=100)


def build(
    request: OrderRequest, resolution: Resolution, *, subject: Subject, identity: str, now: str, content: str
) -> Order:
    owner = authorisation.owner_for(subject, request.owner) or DEFAULT_OWNER
    not_before = request.not_before
    return Order(
        id=identity,
        packet=request.packet.name if isinstance(request.packet, Packet) else request.packet,
        priority=DEFAULT_PRIORITY if request.priority is None else request.priority,
        owner=owner,
        creator=authorisation.creator_for(subject, request.creator) or owner,
        created=now,
        labels=request.labels,
        target_policy=request.target_policy,
        deadline=request.deadline,
        not_before=None if not_before is None else times.show(times.parse(not_before, "not_before")),
        orchestration=request.orchestration or "push",
        preempts=request.preempts,
        failure_policies=request.failure_policies,
        tasks_total=resolution.tasks_total,
        digest=content,
        resolved_digest=resolution.digest,
        resolved=resolution.raw,
        schedule=_schedule(request),
    )


def _schedule(request: OrderRequest) -> Schedule | None:
    if request.schedule is None or request.schedule.until is None:
        return request.schedule
    until = times.show(times.parse(request.schedule.until, "schedule.until"))
    return msgspec.structs.replace(request.schedule, until=until)
