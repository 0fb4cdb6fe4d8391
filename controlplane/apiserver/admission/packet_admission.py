"""The rules of a Packet."""

from __future__ import annotations

from msgspec.structs import replace

from controlplane.apiserver.admission import catalogue, fields
from controlplane.apiserver.admission import job_admission as jobs
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.fields import at
from controlplane.model import dependencies
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.job import Job
from controlplane.model.packet import Packet, PacketJob

MAX_JOBS = 1000
MAX_TASKS = 1_000_000
# As many as fit into a report.
MAX_PACK = 1000


def admit(packet: Packet, existing: Catalogue, path: str = "") -> Packet:
    """The packet with its defaults; an inline job without a name is `job-<position>`, counted from 1."""
    field = at(path, "jobs")
    if not packet.jobs:
        raise Invalid(field, "must hold at least one job")
    if len(packet.jobs) > MAX_JOBS:
        message = f"{field}: must not hold more than {MAX_JOBS} jobs, but has {len(packet.jobs)}"
        raise LimitExceeded(message, field=field)
    admitted = tuple(
        _part(part, existing, position, f"{field}[{position}]") for position, part in enumerate(packet.jobs)
    )
    _distinct(admitted, field)
    _without_cycle(admitted, field)
    fields.names(packet.resources, at(path, "resources"))
    for position, name in enumerate(packet.resources):
        catalogue.resource(existing, name, f"{at(path, 'resources')}[{position}]")
    pack = 1 if packet.pack is None else packet.pack
    fields.number(pack, at(path, "pack"), least=1, most=MAX_PACK)
    return replace(packet, jobs=admitted, gang=bool(packet.gang), pack=pack)


def name_of(part: PacketJob) -> str:
    return part.job.name if isinstance(part.job, Job) else part.job


def _part(part: PacketJob, existing: Catalogue, position: int, path: str) -> PacketJob:
    field = f"{path}.job"
    count = 1 if part.count is None else part.count
    fields.number(count, f"{path}.count", least=1, most=MAX_TASKS)
    if isinstance(part.job, Job):
        job = part.job if part.job.name else replace(part.job, name=f"job-{position + 1}")
        fields.name(job.name, f"{field}.name")
        fields.labels(job.labels, f"{field}.labels")
        return replace(part, job=jobs.admit(job, existing, field), count=count)
    if not part.job:
        raise Invalid(field, "must be the name of a job or the job itself")
    fields.name(part.job, field)
    catalogue.job(existing, part.job, field)
    return replace(part, count=count)


def _distinct(parts: tuple[PacketJob, ...], field: str) -> None:
    seen: set[str] = set()
    for position, part in enumerate(parts):
        if name_of(part) in seen:
            raise Invalid(f"{field}[{position}].job", f"{name_of(part)!r} is there twice; give it a count instead")
        seen.add(name_of(part))


def _without_cycle(parts: tuple[PacketJob, ...], field: str) -> None:
    position_of = {name_of(part): position for position, part in enumerate(parts)}
    for position, part in enumerate(parts):
        for index, name in enumerate(part.after):
            if name not in position_of:
                raise Invalid(f"{field}[{position}].after[{index}]", f"{name!r} is not a job of this packet")
    stuck = dependencies.waiting_for_itself({name_of(part): part.after for part in parts})
    if stuck:
        first = min(stuck, key=position_of.__getitem__)
        raise Invalid(f"{field}[{position_of[first]}].after", f"{first!r} would wait for itself")
