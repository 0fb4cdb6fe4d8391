"""Why the tasks of an order wait, on a replica's own snapshot: every pending task gets exactly one reason."""

from __future__ import annotations

from collections import Counter

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.placement_hint import PlacementHint
from controlplane.engine import reason_codes
from controlplane.engine.filtering import reason_of
from controlplane.engine.owners import Owners
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature, signature_of
from controlplane.model.order import Reason, ResolvedJob
from controlplane.model.task import TaskState

Judged = dict[tuple[Signature, str], str]
# Tasks of the same job which may go to the same targets.
Part = tuple[str, PlacementHint]


def of_order(room: Room, ledger: OrderLedger, now: str, judged: Judged | None = None) -> tuple[Reason, ...]:
    """The reasons of the waiting tasks. `judged` keeps verdicts on this very room, for callers with many orders."""
    return counted_reasons(ledger, now, of_parts(room, ledger, now, judged))


def counted_reasons(ledger: OrderLedger, now: str, parts: dict[Part, str]) -> tuple[Reason, ...]:
    """How many tasks wait for which reason, given the reason of each part."""
    counted: Counter[str] = Counter()
    counted[reason_codes.LOST] = sum(job.counts[TaskState.ORPHANED] for job in ledger.jobs.values())
    for (name, hint), why in parts.items():
        waiting, backing_off = waiting_and_backing_off(ledger, name, hint, why, now)
        counted[reason_codes.BACKING_OFF] += backing_off
        counted[why] += waiting
    return tuple(Reason(reason=reason, count=count) for reason, count in sorted(counted.items()) if count)


def waiting_and_backing_off(ledger: OrderLedger, name: str, hint: PlacementHint, why: str, now: str) -> tuple[int, int]:
    """How many tasks of a part wait for the reason `why`, and how many only wait for the time of the next try."""
    job = ledger.jobs[name]
    pending = dict(job.parts())[hint]
    backing_off = pending - dict(job.parts(now)).get(hint, 0) if why not in _OF_THE_ORDER else 0
    return pending - backing_off, backing_off


def of_parts(room: Room, ledger: OrderLedger, now: str, judged: Judged | None = None) -> dict[Part, str]:
    """The reason for waiting of each part of a job with pending tasks, back-off times of single tasks apart."""
    judged = {} if judged is None else judged
    reasons: dict[Part, str] = {}
    for resolved in ledger.resolved.jobs:
        name = resolved.job.name
        if ledger.ending or not ledger.jobs[name].pending() or ledger.blocked(name):
            continue
        why = of_the_order(ledger, name, now)
        for hint, count in ledger.jobs[name].parts():
            if count:
                reasons[name, hint] = why or _of_the_targets(room, ledger, resolved, hint, judged)
    return reasons


def isolated_parts(ledger: OrderLedger) -> dict[Part, str]:
    """The reasons of an isolated order, which is left out because handling the order fails: all tasks wait for
    `Isolated`."""
    return {
        (name, hint): reason_codes.ISOLATED
        for name, job in ledger.jobs.items()
        if not ledger.ending and job.pending() and not ledger.blocked(name)
        for hint, count in job.parts()
        if count
    }


def _of_the_targets(room: Room, ledger: OrderLedger, resolved: ResolvedJob, hint: PlacementHint, judged: Judged) -> str:
    signature = signature_of(ledger, resolved.job, room.world.book.facts(ledger.order, resolved.job), hint)
    key = (signature, ledger.order.owner)
    if key not in judged:
        judged[key] = reason_of(room, signature, ledger.order.owner)
    why = judged[key]
    if why != reason_codes.QUEUED or not ledger.resolved.gang:
        return why
    return reason_codes.QUOTA if gang_beyond_quota(room, ledger, room.owners) else reason_codes.GANG


def gang_beyond_quota(room: Room, ledger: OrderLedger, owners: Owners) -> bool:
    """Whether the owner's quota does not allow all waiting tasks of the gang, beside the usage in `owners`."""
    owners = owners.copy()
    for resolved in ledger.resolved.jobs:
        job = resolved.job
        signature = signature_of(ledger, job, room.world.book.facts(ledger.order, job))
        waiting = ledger.jobs[job.name].pending()
        if waiting > owners.allowance(ledger.order.owner, signature):
            return True
        owners.take(ledger.order.owner, signature, waiting)
    return False


def of_the_order(ledger: OrderLedger, name: str, now: str) -> str | None:
    """The reason in the order itself for which tasks of this job wait, whatever the targets; None when there is
    none."""
    if ledger.order.paused:
        return reason_codes.PAUSED
    if (ledger.order.not_before or "") > now:
        return reason_codes.NOT_BEFORE
    if ledger.waits_for(name):
        return reason_codes.WAITS_FOR_JOBS
    return None


_OF_THE_ORDER = frozenset(
    {reason_codes.PAUSED, reason_codes.NOT_BEFORE, reason_codes.WAITS_FOR_JOBS, reason_codes.ISOLATED}
)
