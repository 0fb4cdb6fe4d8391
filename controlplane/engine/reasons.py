"""Why the tasks of an order wait, on a replica's own snapshot: every pending task gets exactly one reason."""

from __future__ import annotations

from collections import Counter

from controlplane.cache.ledger import OrderLedger
from controlplane.engine import verdict
from controlplane.engine.world import World, signature_of
from controlplane.model.order import Reason


def of_order(world: World, ledger: OrderLedger, now: str) -> tuple[Reason, ...]:
    counted: Counter[str] = Counter()
    for resolved in ledger.resolved.jobs:
        job = ledger.jobs[resolved.job.name]
        pending = job.pending()
        if not pending or ledger.order.cancel:
            continue
        if ledger.order.paused:
            counted[verdict.PAUSED] += pending
            continue
        ready = job.ready(now)
        if pending > ready:
            counted[verdict.BACKING_OFF] += pending - ready
        if ready:
            counted[verdict.reason(signature_of(ledger, resolved.job), world)] += ready
    return tuple(Reason(reason=reason, count=count) for reason, count in sorted(counted.items()))
