"""Driver: a job names the kinds of drivers able to run the job; a job without an image cannot run in a cluster."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask
from controlplane.engine.filters.static_filter import Columns, StaticFilter
from controlplane.engine.rules.facts import TargetFacts
from controlplane.engine.signature import Signature
from controlplane.model.driver_traits import NEEDING_IMAGES


class DriverKind(StaticFilter):
    code = reason_codes.DRIVER

    def refused(self, columns: Columns, signature: Signature) -> Iterable[Mask]:
        if signature.drivers:
            yield ~columns.of_driver(signature.drivers)
        if signature.imageless:
            yield columns.of_driver(NEEDING_IMAGES)

    def why(self, target: TargetFacts, signature: Signature) -> str:
        if not signature.drivers or target.driver in signature.drivers:
            return f"is run by {target.driver}, which runs images, and the job names none"
        return f"is run by {target.driver or 'no driver yet'}, the job supports {', '.join(signature.drivers)}"
