"""Targets as columns: name, region, driver and labels, with the masks and scores which depend on these columns only.

The columns are kept for as long as no target changes its name, region, driver, labels or capacity, and so is the
`StaticFit` of every signature.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controlplane.engine.arrays import Mask, Rows, Vector
from controlplane.engine.filters.driver_kind import DriverKind
from controlplane.engine.filters.home_region import HomeRegion
from controlplane.engine.filters.label_constraints import LabelConstraints
from controlplane.engine.filters.static_filter import StaticFilter
from controlplane.engine.filters.target_policy import TargetPolicy
from controlplane.engine.rules.facts import TargetFacts
from controlplane.engine.signature import Signature
from controlplane.model import selectors
from controlplane.model.job import Constraint

# The first part of `filtering.FILTERS`.
STATIC_FILTERS: tuple[StaticFilter, ...] = (TargetPolicy(), DriverKind(), HomeRegion(), LabelConstraints())
_MOST_KEPT = 50_000
_DEFAULT_WEIGHT = 50.0


@dataclass(frozen=True, slots=True)
class StaticFit:
    """The result of the columns for a signature: the code and mask of each static filter which refuses any target, the
    rows which no static filter refuses, and the fixed scores.

    `soft` is None when the signature has no soft constraints; `tiers` counts from 0 for the targets asked first.
    """

    refusals: tuple[tuple[str, Mask], ...]
    rows: Rows
    soft: Vector | None
    tiers: NDArray[np.int64] | None


@dataclass(frozen=True, slots=True)
class _Column:
    """A label over all targets: a small number for each value, -1 where the label is absent."""

    codes: NDArray[np.int64]
    values: tuple[str, ...]


class TargetColumns:
    def __init__(self, targets: tuple[TargetFacts, ...]) -> None:
        self.targets = targets
        self.names = [facts.name for facts in targets]
        self._rows = {facts.name: row for row, facts in enumerate(targets)}
        self._columns: dict[str, _Column] = {}
        self._static: dict[tuple[object, ...], StaticFit] = {}

    def row(self, name: str) -> int | None:
        return self._rows.get(name)

    @cached_property
    def all_rows(self) -> Rows:
        return np.arange(len(self.targets))

    def static(self, signature: Signature) -> StaticFit:
        fit = self._static.get(signature.static_key)
        if fit is None:
            if len(self._static) >= _MOST_KEPT:
                self._static.clear()
            fit = self._static[signature.static_key] = self._static_fit(signature)
        return fit

    def _static_fit(self, signature: Signature) -> StaticFit:
        refusals = [(each.code, mask) for each in STATIC_FILTERS for mask in each.refused(self, signature)]
        rows = self.all_rows
        if refusals:
            rows = np.flatnonzero(~np.logical_or.reduce([mask for _, mask in refusals]))
        return StaticFit(tuple(refusals), rows, self._soft(signature), self._tiers(signature))

    def named(self, names: tuple[str, ...]) -> Mask:
        mask = np.zeros(len(self.targets), dtype=bool)
        mask[[row for name in names if (row := self._rows.get(name)) is not None]] = True
        return mask

    def of_region(self, regions: tuple[str, ...]) -> Mask:
        return self._own("region", regions)

    def of_driver(self, drivers: tuple[str, ...]) -> Mask:
        return self._own("driver", drivers)

    def _own(self, field: str, wanted: tuple[str, ...]) -> Mask:
        """Targets whose own region or driver, not a label of the same name, is among the wanted values."""
        column = self._column(field, own=True)
        return np.isin(column.codes, [code for code, value in enumerate(column.values) if value in wanted])

    def matching(self, constraint: Constraint) -> Mask:
        """Targets whose label satisfies the constraint; each occurring value is checked once."""
        column = self._column(constraint.label, own=False)
        verdicts = np.array(
            [selectors.matches(constraint, {constraint.label: value}) for value in column.values]
            + [selectors.matches(constraint, {})],
            dtype=bool,
        )
        return np.asarray(verdicts[column.codes], dtype=bool)

    def _column(self, label: str, *, own: bool) -> _Column:
        key = f"\0{label}" if own else label
        column = self._columns.get(key)
        if column is None:
            seen: dict[str, int] = {}
            values = [getattr(facts, label) if own else facts.labels.get(label) for facts in self.targets]
            codes = [-1 if value is None else seen.setdefault(value, len(seen)) for value in values]
            column = self._columns[key] = _Column(np.array(codes, dtype=np.int64), tuple(seen))
        return column

    def _soft(self, signature: Signature) -> Vector | None:
        """The met part of the weights of all soft constraints, 0 to 1."""
        weights = [_DEFAULT_WEIGHT if each.weight is None else float(each.weight) for each in signature.soft]
        if not sum(weights):
            return None
        met = sum(
            weight * self.matching(constraint).astype(np.float64)
            for weight, constraint in zip(weights, signature.soft, strict=True)
        )
        return np.asarray(met / sum(weights), dtype=np.float64)

    def _tiers(self, signature: Signature) -> NDArray[np.int64] | None:
        if not signature.prefer:
            return None
        tiers = np.full(len(self.targets), len(signature.prefer), dtype=np.int64)
        for tier in range(len(signature.prefer) - 1, -1, -1):
            tiers[self.named(signature.prefer[tier])] = tier
        return tiers
