"""The part of P4 about claims without a holder: a resource that no fulfilment holds and no fulfilment can get.

A claim is created and deleted in the transactions that place and release its fulfilment, so a claim without its
fulfilment is never ordinary. A leader releases such a claim once the holder is certainly dead.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.store import keys
from controlplane.verify.present import Present
from controlplane.verify.suspicion import Suspicion

# Time for a leader to see the claim and release it, beside the time in which a holder dies.
_NOTICED_SECONDS = 10.0


class UnheldClaims:
    """Suspects claims whose fulfilment is not desired."""

    promise = "P4"

    def subjects(self, present: Present) -> Iterable[str]:
        return present.claims

    def suspect(self, present: Present, subject: str) -> Suspicion | None:
        claimed = present.claims.get(subject)
        if claimed is None or claimed.claim.fulfilment in present.desired:
            return None
        claim, seconds = claimed.claim, _dead_seconds(present, claimed.claim.target)
        if seconds is None:
            return None
        why = f"is claimed by fulfilment {claim.fulfilment} of order {claim.order}, which is not desired"
        return Suspicion(keys.claim(subject), claimed.revision, why, _NOTICED_SECONDS + seconds)


def _dead_seconds(present: Present, target: str) -> float | None:
    """How long a vanished holder may live on; None while the target reports leftovers."""
    session = present.sessions.get(target)
    return None if session is not None and session.leftovers else present.grace_seconds(target)
