"""Resolution: a packet and all objects named by it, as they are now, folded into the content of an order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from controlplane.apiserver.admission import catalogue, gang, pod_fields
from controlplane.apiserver.admission import job_admission as jobs
from controlplane.apiserver.admission import packet_admission as packets
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.restrictions import NOTHING_SPECIAL, Demands, demands_of
from controlplane.model.errors import LimitExceeded
from controlplane.model.job import Job
from controlplane.model.order import Resolved, ResolvedJob, content_digest
from controlplane.model.packet import Packet, PacketJob
from controlplane.store import codec

MAX_BYTES = 256 * 1024
MAX_TASKS = 1_000_000
MAX_FULFILMENTS = 100_000
FIELD = "packet"


class Where(NamedTuple):
    """Where a job may run, as far as its order's target policy matters."""

    path: str
    policy: str
    region: str
    spread_tasks: int


@dataclass(frozen=True, slots=True)
class Resolution:
    """The content shared by all orders of a packet, encoded once. `gang_bytes` is 0 without a gang."""

    packet: str
    raw: msgspec.Raw
    digest: str
    tasks_total: int
    gang_bytes: int = 0
    where: tuple[Where, ...] = ()
    demands: Demands = NOTHING_SPECIAL


def resolve(packet: Packet, existing: Catalogue) -> Resolution:
    """Stored objects are checked again: objects they refer to may be gone, and any program may have written them."""
    packet = packets.admit(packet, existing, FIELD)
    resolved = tuple(_job(part, packet, existing, position) for position, part in enumerate(packet.jobs))
    names = dict.fromkeys(name for job in resolved for name in job.job.resources)
    resources = tuple(catalogue.resource(existing, name, f"{FIELD}.resources") for name in names)
    unique = {resource.name for resource in resources if resource.unique}
    by_name = {resource.name: resource for resource in resources}
    for position, job in enumerate(resolved):
        field = f"{FIELD}.jobs[{position}].job.resources"
        jobs.unique_limit(sum(name in unique for name in job.job.resources), field)
        pod_fields.distinct((by_name[name] for name in job.job.resources), field)
    whole = Resolved(jobs=resolved, resources=resources, gang=bool(packet.gang), pack=packet.pack or 1)
    _within_limits(whole)
    if whole.gang:
        gang.check(whole, FIELD)
    raw = codec.check(whole, FIELD)
    if len(raw) > MAX_BYTES:
        message = f"{FIELD}: with all that it names it must not be above {MAX_BYTES} bytes, but has {len(raw)}"
        raise LimitExceeded(message, field=FIELD)
    return Resolution(
        packet=packet.name,
        raw=msgspec.Raw(raw),
        digest=content_digest(raw),
        tasks_total=whole.task_count(),
        gang_bytes=gang.size(whole) if whole.gang else 0,
        where=tuple(_where(whole)),
        demands=demands_of(part.job for part in whole.jobs),
    )


def _where(resolved: Resolved) -> Iterator[Where]:
    for position, part in enumerate(resolved.jobs):
        job = part.job
        spread = part.count if job.spread == "order" else 0
        if spread > 1 or job.region:
            yield Where(f"{FIELD}.jobs[{position}].job", job.target_policy or "any", job.region, spread)


def _job(part: PacketJob, packet: Packet, existing: Catalogue, position: int) -> ResolvedJob:
    here = f"{FIELD}.jobs[{position}].job"
    job = part.job if isinstance(part.job, Job) else jobs.admit(catalogue.job(existing, part.job, here), existing, here)
    complete = replace(
        job,
        requests=job.requests if job.requests is not None else existing.settings().default_requests,
        target_policy=job.target_policy or "any",
        resources=tuple(dict.fromkeys((*packet.resources, *job.resources))),
    )
    return ResolvedJob(job=complete, count=part.count or 1, after=part.after)


def _within_limits(resolved: Resolved) -> None:
    tasks = resolved.task_count()
    if tasks > MAX_TASKS:
        raise LimitExceeded(f"{FIELD}: must not hold more than {MAX_TASKS} tasks, but has {tasks}", field=FIELD)
    fulfilments = sum(-(-job.count // resolved.pack) for job in resolved.jobs)
    if fulfilments > MAX_FULFILMENTS:
        message = f"{FIELD}: must not need more than {MAX_FULFILMENTS} fulfilments, but needs {fulfilments}; use pack"
        raise LimitExceeded(message, field=FIELD)
