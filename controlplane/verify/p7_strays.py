"""The part of P7 about strays: no fulfilment is desired for an order that is final or gone.

An order becomes final in the transaction that releases its last fulfilment, or later. A stray fulfilment is ordinary
only until the leader stops it, and then for as long as its target may take to report the stop.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.model import silence
from controlplane.verify.present import Present
from controlplane.verify.suspicion import Suspicion

# Time for the leader to see that the order is over and to ask for the stop.
NOTICED_SECONDS = 10.0
_STOP = "stop"


class StrayPlacements:
    """Suspects placements of orders that are final or gone."""

    promise = "P7"

    def subjects(self, present: Present) -> Iterable[str]:
        return present.placements

    def suspect(self, present: Present, subject: str) -> Suspicion | None:
        placement = present.placements.get(subject)
        if placement is None:
            return None
        order = placement.fulfilment.order
        if order not in present.orders:
            state = "is gone"
        elif present.is_over(order):
            state = f"is {present.statuses[order].phase}"
        else:
            return None
        stops = placement.fulfilment.want == _STOP
        seconds = _stop_seconds(present, placement.fulfilment.target) if stops else NOTICED_SECONDS
        if seconds is None:
            return None
        return Suspicion(subject, placement.revision, f"is desired though its order {order} {state}", seconds)


def _stop_seconds(present: Present, target: str) -> float | None:
    """The longest time of a stop; None where the pods of a lost cluster are kept until their end is known."""
    lease = silence.lease_seconds(silence.fitting(present.settings))
    if target in present.sessions:
        return silence.POD_STOP_SECONDS + lease
    grace = present.grace_seconds(target)
    return None if grace is None else NOTICED_SECONDS + lease + grace
