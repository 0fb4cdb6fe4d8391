"""Why the tasks of an order wait, on a replica's own snapshot: every pending task gets exactly one reason."""

from __future__ import annotations

from collections import Counter

from controlplane.cache.ledger import ORPHAN, OrderLedger
from controlplane.engine import words
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature, signature_of
from controlplane.engine.verdicts import reason_of
from controlplane.model.order import Reason

Judged = dict[tuple[Signature, str], str]


def of_order(room: Room, ledger: OrderLedger, now: str, judged: Judged | None = None) -> tuple[Reason, ...]:
    """`judged` keeps verdicts on this very room, for who asks about many orders."""
    counted: Counter[str] = Counter()
    counted[words.LOST] = sum(job.counts[ORPHAN] for job in ledger.jobs.values())
    for name, why in of_jobs(room, ledger, now, judged).items():
        job = ledger.jobs[name]
        backing_off = job.pending() - job.ready(now) if why not in _OF_THE_ORDER else 0
        counted[words.BACKING_OFF] += backing_off
        counted[why] += job.pending() - backing_off
    return tuple(Reason(reason=reason, count=count) for reason, count in sorted(counted.items()) if count)


def of_jobs(room: Room, ledger: OrderLedger, now: str, judged: Judged | None = None) -> dict[str, str]:
    """Why tasks wait that could be placed as far as their own times go, for each job that has any pending."""
    judged = {} if judged is None else judged
    found: dict[str, str] = {}
    for resolved in ledger.resolved.jobs:
        name = resolved.job.name
        if ledger.order.cancel or not ledger.jobs[name].pending() or ledger.blocked(name):
            continue
        why = of_the_order(ledger, name, now)
        if why is None:
            signature = signature_of(ledger, resolved.job, room.world.book.facts(ledger.order, resolved.job))
            key = (signature, ledger.order.owner)
            if key not in judged:
                judged[key] = reason_of(room, signature, ledger.order.owner)
            why = judged[key]
            if why == words.QUEUED and ledger.resolved.gang:
                why = words.GANG
        found[name] = why
    return found


def of_the_order(ledger: OrderLedger, name: str, now: str) -> str | None:
    """What keeps the tasks of this job, whatever the targets say."""
    if ledger.order.paused:
        return words.PAUSED
    if (ledger.order.not_before or "") > now:
        return words.NOT_BEFORE
    if ledger.waits_for(name):
        return words.WAITS_FOR_JOBS
    return None


_OF_THE_ORDER = frozenset({words.PAUSED, words.NOT_BEFORE, words.WAITS_FOR_JOBS})
