"""Why the tasks of an order wait, on a replica's own snapshot: every pending task gets exactly one reason."""

from __future__ import annotations

from collections import Counter

from controlplane.cache.ledger import OrderLedger
from controlplane.engine import verdict
from controlplane.engine.world import Signature, World, signature_of
from controlplane.model.order import Reason


def of_order(
    world: World, ledger: OrderLedger, now: str, judged: dict[Signature, str] | None = None
) -> tuple[Reason, ...]:
    """`judged` keeps verdicts on this very world, for who asks about many orders."""
    judged = {} if judged is None else judged
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
            signature = signature_of(ledger, resolved.job)
            if signature not in judged:
                judged[signature] = verdict.reason(signature, world)
            counted[judged[signature]] += ready
    return tuple(Reason(reason=reason, count=count) for reason, count in sorted(counted.items()))
