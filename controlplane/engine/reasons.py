"""Why the tasks of an order wait, on a replica's own snapshot: every pending task gets exactly one reason."""

from __future__ import annotations

from collections import Counter

from controlplane.cache.ledger import ORPHAN, OrderLedger
from controlplane.engine import verdict
from controlplane.engine.world import Signature, World, signature_of
from controlplane.model.order import Reason


def of_order(
    world: World, ledger: OrderLedger, now: str, judged: dict[Signature, str] | None = None
) -> tuple[Reason, ...]:
    """`judged` keeps verdicts on this very world, for who asks about many orders."""
    counted: Counter[str] = Counter()
    counted[verdict.LOST] = sum(job.counts[ORPHAN] for job in ledger.jobs.values())
    for name, why in of_jobs(world, ledger, judged).items():
        job = ledger.jobs[name]
        backing_off = 0 if ledger.order.paused else job.pending() - job.ready(now)
        counted[verdict.BACKING_OFF] += backing_off
        counted[why] += job.pending() - backing_off
    return tuple(Reason(reason=reason, count=count) for reason, count in sorted(counted.items()) if count)


def of_jobs(world: World, ledger: OrderLedger, judged: dict[Signature, str] | None = None) -> dict[str, str]:
    """Why tasks wait that could be placed as far as their own times go, for each job that has any pending."""
    judged = {} if judged is None else judged
    found: dict[str, str] = {}
    for resolved in ledger.resolved.jobs:
        if ledger.order.cancel or not ledger.jobs[resolved.job.name].pending():
            continue
        if ledger.order.paused:
            found[resolved.job.name] = verdict.PAUSED
            continue
        signature = signature_of(ledger, resolved.job)
        if signature not in judged:
            judged[signature] = verdict.reason(signature, world)
        found[resolved.job.name] = judged[signature]
    return found
