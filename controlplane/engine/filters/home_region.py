"""Region: a job with a region runs on targets of the same region only."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask
from controlplane.engine.filters.static_filter import Columns, StaticFilter
from controlplane.engine.rules.facts import TargetFacts
from controlplane.engine.signature import Signature


class HomeRegion(StaticFilter):
    code = reason_codes.REGION

    def refused(self, columns: Columns, signature: Signature) -> Iterable[Mask]:
        if signature.region:
            yield ~columns.of_region((signature.region,))

    def why(self, target: TargetFacts, signature: Signature) -> str:
        return f"is in region {target.region or '(none)'}, not in {signature.region}"
