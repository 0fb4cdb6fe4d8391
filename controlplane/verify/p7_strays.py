"""The part of P7 about what is left of an order: nothing is desired for an order that is final or gone.

An order becomes final in the transaction that releases its last fulfilment, or later. A stray is ordinary only while
the leader stops it, and for as long as its target may take to say that it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.model import silence
from controlplane.verify.present import Present
from controlplane.verify.suspicion import Suspicion

# Until the leader has seen that the order is over and asked for the stop.
NOTICED_SECONDS = 10.0
_STOP = "stop"


class Strays:
    promise = "P7"

    def subjects(self, present: Present) -> Iterable[str]:
        return present.placements

    def look(self, present: Present, subject: str) -> Suspicion | None:
        placement = present.placements.get(subject)
        if placement is None:
            return None
        order = placement.fulfilment.order
        if order not in present.orders:
            what = "is gone"
        elif present.is_over(order):
            what = f"is {present.statuses[order].phase}"
        else:
            return None
        stops = placement.fulfilment.want == _STOP
        seconds = _stop_seconds(present, placement.fulfilment.target) if stops else NOTICED_SECONDS
        if seconds is None:
            return None
        return Suspicion(subject, placement.revision, f"is desired though its order {order} {what}", seconds)


def _stop_seconds(present: Present, target: str) -> float | None:
    """What a stop takes at most; None where a lost cluster's pods are kept until somebody can say that they ended."""
    lease = silence.lease_seconds(silence.fitting(present.settings))
    if target in present.sessions:
        return silence.POD_STOP_SECONDS + lease
    grace = present.grace_seconds(target)
    return None if grace is None else NOTICED_SECONDS + lease + grace
