"""The rules of gangs: all tasks are placed in one transaction, so they must fit into a transaction together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.fulfilment import Claim, Fulfilment, TaskRef, TaskSpec, Traits
from controlplane.model.job import Job
from controlplane.model.order import Resolved, ResolvedJob
from controlplane.model.resource import Resource

MAX_OPERATIONS = 2000
MAX_BYTES = 1 << 20
# Every claim is compared, and a transaction takes so many compares beside the leader's own.
MAX_CLAIMS = 100

# The longest values of these fields.
_IDENTITY, _TARGET, _NUMBER, _TIME = "0" * 26, "x" * 63, 10**9, "2026-01-01T00:00:00.000Z"
# A task whose job has no time limit gets its target's.
_LIMIT = len(',"time_limit":999999999.999999')
# Bytes of a transaction beside its fulfilments: compares and frames.
_MARGIN = 16 << 10
_DESIRED = len(f"/controlplane/desired/{_TARGET}/{_IDENTITY}") + 16
_CLAIMS = len("/controlplane/claims/") + 48


def check(resolved: Resolved, path: str) -> None:
    """The rules apart from the order; `size` counts the bytes of the tasks."""
    field = f"{path}.gang"
    unique = {resource.name for resource in resolved.resources if resource.unique}
    _held_once(resolved, unique, path)
    tasks, claims = resolved.task_count(), len(unique)
    if tasks + claims > MAX_OPERATIONS:
        counts = f"{tasks} tasks and {claims} unique resources"
        raise LimitExceeded(f"{field}: must not be more than {MAX_OPERATIONS} together, but has {counts}", field=field)
    if claims > MAX_CLAIMS:
        raise LimitExceeded(f"{field}: must not need more than {MAX_CLAIMS} unique resources", field=field)


def _held_once(resolved: Resolved, unique: set[str], path: str) -> None:
    # Jobs that wait for others are placed after them, and may hold the same in turn.
    in_turn = any(job.after for job in resolved.jobs)
    holders: Counter[str] = Counter(name for job in resolved.jobs for name in job.job.resources)
    for position, job in enumerate(resolved.jobs):
        for name in job.job.resources:
            if name in unique and (job.count > 1 or (holders[name] > 1 and not in_turn)):
                rule = f"two tasks of a gang need {name!r}, which only one of them could hold"
                raise Invalid(f"{path}.jobs[{position}].job.resources", rule)


def size(resolved: Resolved, more: Sequence[Resource] = ()) -> int:
    """The most bytes which all fulfilments and claims take in one transaction, apart from their owner's name.

    `more` are resources added by the order to those of its jobs.
    """
    return sum(job.count * _size_of(job, resolved, more) for job in resolved.jobs)


def fits_with(resolved: Resolved, more: Sequence[Resource], owner: str, field: str, *, limited: bool = False) -> None:
    """LimitExceeded when a gang, or a single fulfilment, is too large with these resources."""
    each = [(job.count if resolved.gang else 1, _size_of(job, resolved, more)) for job in resolved.jobs]
    tasks = sum(count for count, _ in each) if resolved.gang else 1
    most = sum(count * bytes_ for count, bytes_ in each) if resolved.gang else max(bytes_ for _, bytes_ in each)
    total = most + _more_size(tasks, owner, limited=limited)
    if total > MAX_BYTES - _MARGIN:
        together = "the fulfilments of the gang" if resolved.gang else "a fulfilment"
        message = f"{field}: {together} must not be above {MAX_BYTES - _MARGIN} bytes together, but may have {total}"
        raise LimitExceeded(message, field=field)


def fits(bytes_: int, tasks: int, owner: str, path: str, *, limited: bool = False) -> None:
    """`limited`: whether targets exist which give a time limit to tasks without a limit."""
    total = bytes_ + _more_size(tasks, owner, limited=limited)
    if total > MAX_BYTES:
        field = f"{path}.gang"
        message = f"{field}: its fulfilments must not be above {MAX_BYTES} bytes together, but may have {total}"
        raise LimitExceeded(message, field=field)


def _more_size(tasks: int, owner: str, *, limited: bool) -> int:
    """The bytes which do not follow from the packet alone."""
    return tasks * (len(msgspec.json.encode(owner)) + len(',"owner":') + (_LIMIT if limited else 0))


def _size_of(resolved: ResolvedJob, whole: Resolved, more: Sequence[Resource]) -> int:
    """The bytes of one task."""
    job = resolved.job
    handed = [*(resource for resource in whole.resources if resource.name in job.resources), *more]
    holds = tuple(dict.fromkeys(resource.name for resource in handed if resource.unique))
    claims = sum(_CLAIMS + 2 * len(name) + len(msgspec.json.encode(_claim(name))) for name in holds)
    fulfilment = _fulfilment(job, handed, holds, resolved.count)
    together = min(whole.pack, resolved.count) - 1
    return _DESIRED + len(msgspec.json.encode(fulfilment)) + claims + together * _task_size(fulfilment)


def _task_size(fulfilment: Fulfilment) -> int:
    """The bytes of each further task in a shared fulfilment."""
    return len(msgspec.json.encode(fulfilment.tasks[0])) + 1


def _fulfilment(job: Job, handed: Sequence[Resource], holds: tuple[str, ...], index: int) -> Fulfilment:
    spec = TaskSpec(
        command=job.command,
        image=job.image,
        environment={**job.env, **{resource.key: resource.mount or resource.value for resource in handed}},
        requests=job.requests or {},
        time_limit=job.time_limit,
        files={resource.mount: resource.value for resource in handed if resource.mount},
        nodes=job.constraints,
        tolerations=job.tolerations,
        image_pull_secrets=job.image_pull_secrets,
    )
    traits = Traits(
        labels=job.labels,
        class_=job.class_,
        exclusive=job.exclusive,
        preemptible=job.preemptible,
        anti_affinity=job.anti_affinity,
    )
    return Fulfilment(
        id=_IDENTITY,
        epoch=_NUMBER,
        cycle=_NUMBER,
        order=_IDENTITY,
        target=_TARGET,
        tasks=(TaskRef(job=job.name, index=index, attempt=9),),
        jobs={job.name: spec},
        requests=job.requests or {},
        holds=holds,
        traits=traits if traits != Traits() else None,
        created=_TIME,
    )


def _claim(name: str) -> Claim:
    return Claim(resource=name, fulfilment=_IDENTITY, order=_IDENTITY, target=_TARGET, epoch=_NUMBER)
