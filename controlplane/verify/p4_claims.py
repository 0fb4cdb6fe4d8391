"""The part of P4 about claims without a holder: a resource that nobody holds and nobody can have.

A claim is made and deleted in the transactions that place and release its fulfilment, so there is no ordinary moment
without the fulfilment; a leader that finds a claim without one releases it.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.store import keys
from controlplane.verify.present import Present
from controlplane.verify.suspicion import Suspicion

RELEASED_SECONDS = 10.0


class Unheld:
    promise = "P4"

    def subjects(self, present: Present) -> Iterable[str]:
        return present.claims

    def look(self, present: Present, subject: str) -> Suspicion | None:
        claimed = present.claims.get(subject)
        if claimed is None or claimed.claim.fulfilment in present.desired:
            return None
        why = (
            f"is claimed by fulfilment {claimed.claim.fulfilment} of order {claimed.claim.order}, which is not desired"
        )
        return Suspicion(keys.claim(subject), claimed.revision, why, RELEASED_SECONDS)
