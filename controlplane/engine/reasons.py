"""Why the tasks of an order wait, on a replica's own snapshot: every pending task gets exactly one reason."""

from __future__ import annotations

from collections import Counter

from controlplane.cache.detour import Detour
from controlplane.cache.job_ledger import ORPHAN
from controlplane.cache.ledger import OrderLedger
from controlplane.engine import words
from controlplane.engine.owners import Owners
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature, signature_of
from controlplane.engine.verdicts import reason_of
from controlplane.model.order import Reason, ResolvedJob

Judged = dict[tuple[Signature, str], str]
# Tasks of one job that may go to the same targets.
Part = tuple[str, Detour]


def of_order(room: Room, ledger: OrderLedger, now: str, judged: Judged | None = None) -> tuple[Reason, ...]:
    """`judged` keeps verdicts on this very room, for who asks about many orders."""
    return counted_reasons(ledger, now, of_parts(room, ledger, now, judged))


def counted_reasons(ledger: OrderLedger, now: str, parts: dict[Part, str]) -> tuple[Reason, ...]:
    """How many tasks wait for which reason, when these are the reasons of their parts."""
    counted: Counter[str] = Counter()
    counted[words.LOST] = sum(job.counts[ORPHAN] for job in ledger.jobs.values())
    for (name, detour), why in parts.items():
        waiting, backing_off = waiting_and_backing_off(ledger, name, detour, why, now)
        counted[words.BACKING_OFF] += backing_off
        counted[why] += waiting
    return tuple(Reason(reason=reason, count=count) for reason, count in sorted(counted.items()) if count)


def waiting_and_backing_off(ledger: OrderLedger, name: str, detour: Detour, why: str, now: str) -> tuple[int, int]:
    """How many tasks of a part wait for that reason, and how many of them only for the time of their next try."""
    job = ledger.jobs[name]
    pending = dict(job.parts())[detour]
    backing_off = pending - dict(job.parts(now)).get(detour, 0) if why not in _OF_THE_ORDER else 0
    return pending - backing_off, backing_off


def of_parts(room: Room, ledger: OrderLedger, now: str, judged: Judged | None = None) -> dict[Part, str]:
    """Why tasks wait that could be placed as far as their own times go, for each part of a job with any pending."""
    judged = {} if judged is None else judged
    found: dict[Part, str] = {}
    for resolved in ledger.resolved.jobs:
        name = resolved.job.name
        if ledger.ending or not ledger.jobs[name].pending() or ledger.blocked(name):
            continue
        why = of_the_order(ledger, name, now)
        for detour, count in ledger.jobs[name].parts():
            if count:
                found[name, detour] = why or _of_the_targets(room, ledger, resolved, detour, judged)
    return found


def isolated_parts(ledger: OrderLedger) -> dict[Part, str]:
    """Of an order that is left out because handling it fails: that is why all of it waits."""
    return {
        (name, detour): words.ISOLATED
        for name, job in ledger.jobs.items()
        if not ledger.ending and job.pending() and not ledger.blocked(name)
        for detour, count in job.parts()
        if count
    }


def _of_the_targets(room: Room, ledger: OrderLedger, resolved: ResolvedJob, detour: Detour, judged: Judged) -> str:
    signature = signature_of(ledger, resolved.job, room.world.book.facts(ledger.order, resolved.job), detour)
    key = (signature, ledger.order.owner)
    if key not in judged:
        judged[key] = reason_of(room, signature, ledger.order.owner)
    why = judged[key]
    if why != words.QUEUED or not ledger.resolved.gang:
        return why
    return words.QUOTA if gang_beyond_quota(room, ledger, room.owners) else words.GANG


def gang_beyond_quota(room: Room, ledger: OrderLedger, owners: Owners) -> bool:
    """Whether the owner's quota does not allow all that waits of the gang, beside what these owners have."""
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
    """What keeps the tasks of this job, whatever the targets say."""
    if ledger.order.paused:
        return words.PAUSED
    if (ledger.order.not_before or "") > now:
        return words.NOT_BEFORE
    if ledger.waits_for(name):
        return words.WAITS_FOR_JOBS
    return None


_OF_THE_ORDER = frozenset({words.PAUSED, words.NOT_BEFORE, words.WAITS_FOR_JOBS, words.ISOLATED})
