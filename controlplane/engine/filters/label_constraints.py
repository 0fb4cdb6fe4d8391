"""Hard constraints: the labels of a target have to satisfy all of them."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask
from controlplane.engine.filters.static_filter import Columns, StaticFilter
from controlplane.engine.filters.wording import selector
from controlplane.engine.rules.facts import TargetFacts
from controlplane.engine.signature import Signature
from controlplane.model import selectors


class LabelConstraints(StaticFilter):
    code = reason_codes.CONSTRAINT

    def refused(self, columns: Columns, signature: Signature) -> Iterable[Mask]:
        return (~columns.matching(constraint) for constraint in signature.hard)

    def why(self, target: TargetFacts, signature: Signature) -> str:
        unmet = next(constraint for constraint in signature.hard if not selectors.matches(constraint, target.labels))
        value = target.labels.get(unmet.label)
        has = f"has {unmet.label}={value}" if value is not None else f"has no label {unmet.label}"
        return f"{has}, the job asks for {selector(unmet)}"
