"""The part of P4 about claims without a holder: a resource that nobody holds and nobody can have.

A claim is made and deleted in the transactions that place and release its fulfilment, so there is no ordinary moment
without the fulfilment. A leader that finds a claim without one releases it, once the holder is certainly dead.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.store import keys
from controlplane.verify.present import Present
from controlplane.verify.suspicion import Suspicion

# Beside the time in which a holder dies: until a leader has seen the claim and released it.
_NOTICED_SECONDS = 10.0


class Unheld:
    promise = "P4"

    def subjects(self, present: Present) -> Iterable[str]:
        return present.claims

    def look(self, present: Present, subject: str) -> Suspicion | None:
        claimed = present.claims.get(subject)
        if claimed is None or claimed.claim.fulfilment in present.desired:
            return None
        claim, seconds = claimed.claim, _dead_seconds(present, claimed.claim.target)
        if seconds is None:
            return None
        why = f"is claimed by fulfilment {claim.fulfilment} of order {claim.order}, which is not desired"
        return Suspicion(keys.claim(subject), claimed.revision, why, _NOTICED_SECONDS + seconds)


def _dead_seconds(present: Present, target: str) -> float | None:
    """How long a holder that vanished may live on; None while nobody can say."""
    session = present.sessions.get(target)
    return None if session is not None and session.leftovers else present.grace_seconds(target)
