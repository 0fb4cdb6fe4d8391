"""The rules of a Job."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from controlplane.apiserver.admission import catalogue, contradictions, failure_policies, fields, pod_fields
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.fields import at
from controlplane.model import quantity
from controlplane.model.bounds import INT32
from controlplane.model.driver_traits import DRIVERS
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.job import Constraint, Job
from controlplane.model.selectors import OPERATORS

MAX_ARGUMENTS = 1000
MAX_COMMAND = 64 * 1024
MAX_ENV = 500
MAX_UNIQUE = 16
MAX_RULES = 64
SPREADS = ("none", "order")


def admit(job: Job, existing: Catalogue, path: str = "") -> Job:
    """The job with integral numbers as ints. Open fields stay open until an order resolves the job."""
    _what_to_run(job, path)
    _where_to_run(job, existing, path)
    contradictions.in_job(job, path)
    pod_fields.in_job(job, path)
    failure_policies.check(job.failure_policies, at(path, "failure_policies"))
    _work(job, path)
    fields.names(job.resources, at(path, "resources"))
    resources = [
        catalogue.resource(existing, name, f"{at(path, 'resources')}[{position}]")
        for position, name in enumerate(job.resources)
    ]
    unique_limit(sum(bool(resource.unique) for resource in resources), at(path, "resources"))
    pod_fields.distinct(resources, at(path, "resources"))
    if job.requests is None:
        return job
    return replace(job, requests=fields.quantities(job.requests, at(path, "requests")))


def unique_limit(count: int, field: str) -> None:
    if count > MAX_UNIQUE:
        raise LimitExceeded(f"{field}: must not hold more than {MAX_UNIQUE} unique resources a job", field=field)


def policy(value: str | None, existing: Catalogue, field: str) -> None:
    """A target policy; the target of a strict policy must exist."""
    target = fields.target_of(value, field) if value is not None else None
    if target is not None:
        catalogue.target(existing, target, field)


def _what_to_run(job: Job, path: str) -> None:
    fields.line(job.image, at(path, "image"), most=1024)
    command = at(path, "command")
    if len(job.command) > MAX_ARGUMENTS:
        raise LimitExceeded(f"{command}: must not hold more than {MAX_ARGUMENTS} items", field=command)
    if sum(map(len, job.command)) > MAX_COMMAND:
        raise LimitExceeded(f"{command}: must not be longer than {MAX_COMMAND} characters", field=command)
    for position, argument in enumerate(job.command):
        fields.text(argument, f"{command}[{position}]", most=MAX_COMMAND)
    if job.command and not job.command[0]:
        raise Invalid(f"{command}[0]", "must name a program")
    env = at(path, "env")
    if len(job.env) > MAX_ENV:
        raise LimitExceeded(f"{env}: must not hold more than {MAX_ENV} variables", field=env)
    for key, value in job.env.items():
        fields.env_name(key, at(env, key[:64]))
        fields.text(value, at(env, key))
    if job.time_limit is not None:
        fields.duration(job.time_limit, at(path, "time_limit"))


def _where_to_run(job: Job, existing: Catalogue, path: str) -> None:
    policy(job.target_policy, existing, at(path, "target_policy"))
    for position, driver in enumerate(job.drivers):
        fields.one_of(driver, DRIVERS, f"{at(path, 'drivers')}[{position}]")
        if driver in job.drivers[:position]:
            raise Invalid(f"{at(path, 'drivers')}[{position}]", f"{driver!r} is there twice")
    if job.constraints is not None:
        constraints(job.constraints.hard, at(path, "constraints.hard"), soft=False)
        constraints(job.constraints.soft, at(path, "constraints.soft"), soft=True)
    constraints(job.affinity, at(path, "affinity"), soft=False)
    constraints(job.anti_affinity, at(path, "anti_affinity"), soft=False)
    if job.spread is not None:
        fields.one_of(job.spread, SPREADS, at(path, "spread"))
    if job.region:
        fields.label(job.region, at(path, "region"))
    _few(job.prefer, at(path, "prefer"))
    for position, tier in enumerate(job.prefer):
        if not tier:
            raise Invalid(f"{at(path, 'prefer')}[{position}]", "must name at least one target")
        fields.names(tier, f"{at(path, 'prefer')}[{position}]")
    if job.class_:
        fields.label(job.class_, at(path, "class"))
    _few(job.hurt_by, at(path, "hurt_by"))
    for position, neighbour in enumerate(job.hurt_by):
        fields.label(neighbour, f"{at(path, 'hurt_by')}[{position}]")


def constraints(constraints_given: Sequence[Constraint], field: str, *, soft: bool) -> None:
    _few(constraints_given, field)
    for position, constraint in enumerate(constraints_given):
        here = f"{field}[{position}]"
        fields.label(constraint.label, f"{here}.label")
        fields.one_of(constraint.op, OPERATORS, f"{here}.op")
        _values(constraint, f"{here}.values")
        if constraint.weight is not None:
            if not soft:
                raise Invalid(f"{here}.weight", "belongs to soft constraints only")
            fields.number(constraint.weight, f"{here}.weight", least=0, most=100)


def _values(constraint: Constraint, field: str) -> None:
    _few(constraint.values, field)
    for position, value in enumerate(constraint.values):
        fields.line(value, f"{field}[{position}]")
    if constraint.op in ("In", "NotIn") and not constraint.values:
        raise Invalid(field, f"must hold at least one value for {constraint.op}")
    if constraint.op in ("Exists", "DoesNotExist") and constraint.values:
        raise Invalid(field, f"must be empty for {constraint.op}")
    if constraint.op in ("Gt", "Lt"):
        if len(constraint.values) != 1:
            raise Invalid(field, f"must hold exactly one number for {constraint.op}")
        try:
            fields.number(float(constraint.values[0]), f"{field}[0]", least=-(2**60), most=2**60)
        except ValueError:
            raise Invalid(f"{field}[0]", f"must be a number for {constraint.op}") from None


def _work(job: Job, path: str) -> None:
    if job.work is not None:
        quantity.check(job.work, at(path, "work"))
    if job.min_chunk is not None:
        fields.positive(job.min_chunk, at(path, "min_chunk"))
    if job.max_chunks is not None:
        fields.number(job.max_chunks, at(path, "max_chunks"), least=1, most=INT32)


def _few(values: Sequence[object], field: str) -> None:
    if len(values) > MAX_RULES:
        raise LimitExceeded(f"{field}: must not hold more than {MAX_RULES} items", field=field)
