"""Target policy: an order or a job with a named target goes to no other target."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask
from controlplane.engine.filters.static_filter import Columns, StaticFilter
from controlplane.engine.rules.facts import TargetFacts
from controlplane.engine.signature import ANY, STRICT, Signature


class TargetPolicy(StaticFilter):
    code = reason_codes.TARGET_POLICY

    def refused(self, columns: Columns, signature: Signature) -> Iterable[Mask]:
        if signature.policy != ANY:
            yield ~columns.named((signature.policy.removeprefix(STRICT),))

    def why(self, target: TargetFacts, signature: Signature) -> str:
        return f"is not {signature.policy.removeprefix(STRICT)}, which the target policy names"
