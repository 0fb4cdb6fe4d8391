"""The floor: what targets are, as columns. Masks and scores that depend on nothing else are worked out once.

A floor is kept for as long as no target changes its name, region, driver, labels or capacity.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controlplane.engine import words
from controlplane.engine.rules.facts import TargetFacts
from controlplane.engine.signature import ANY, STRICT, Signature
from controlplane.model import selectors
from controlplane.model.job import Constraint
from controlplane.model.nodes import KUBERNETES

Mask = NDArray[np.bool_]
Vector = NDArray[np.float64]
Rows = NDArray[np.intp]

_MOST_KEPT = 50_000
_DEFAULT_WEIGHT = 50.0


@dataclass(frozen=True, slots=True)
class Static:
    """What the floor says of one signature: each filter that refuses anything, who is left, and the fixed scores.

    `soft` is None when no target differs from another in it; `tiers` counts from 0 for the targets asked first.
    """

    refusals: tuple[tuple[str, Mask], ...]
    rows: Rows
    soft: Vector | None
    tiers: NDArray[np.int64] | None


@dataclass(frozen=True, slots=True)
class _Column:
    """One label over all targets: a small number for each value, -1 where it is absent."""

    codes: NDArray[np.int64]
    values: tuple[str, ...]


class Floor:
    def __init__(self, targets: tuple[TargetFacts, ...]) -> None:
        self.targets = targets
        self.names = [facts.name for facts in targets]
        self._rows = {facts.name: row for row, facts in enumerate(targets)}
        self._columns: dict[str, _Column] = {}
        self._static: dict[tuple[object, ...], Static] = {}

    def row(self, name: str) -> int | None:
        return self._rows.get(name)

    @cached_property
    def all_rows(self) -> Rows:
        return np.arange(len(self.targets))

    def static(self, signature: Signature) -> Static:
        found = self._static.get(signature.grounds)
        if found is None:
            if len(self._static) >= _MOST_KEPT:
                self._static.clear()
            found = self._static[signature.grounds] = self._work_out(signature)
        return found

    def _work_out(self, signature: Signature) -> Static:
        refusals: list[tuple[str, Mask]] = []
        if signature.policy != ANY:
            refusals.append((words.TARGET_POLICY, ~self.named((signature.policy.removeprefix(STRICT),))))
        if signature.drivers:
            refusals.append((words.DRIVER, ~self._labelled("driver", signature.drivers, own=True)))
        if signature.imageless:
            refusals.append((words.DRIVER, self._labelled("driver", (KUBERNETES,), own=True)))
        if signature.region:
            refusals.append((words.REGION, ~self._labelled("region", (signature.region,), own=True)))
        refusals.extend((words.CONSTRAINT, ~self.matching(constraint)) for constraint in signature.hard)
        rows = self.all_rows
        if refusals:
            rows = np.flatnonzero(~np.logical_or.reduce([mask for _, mask in refusals]))
        return Static(tuple(refusals), rows, self._soft(signature), self._tiers(signature))

    def named(self, names: tuple[str, ...]) -> Mask:
        mask = np.zeros(len(self.targets), dtype=bool)
        mask[[row for name in names if (row := self._rows.get(name)) is not None]] = True
        return mask

    def _labelled(self, field: str, wanted: tuple[str, ...], *, own: bool) -> Mask:
        """Targets whose own region or driver, not a label of that name, is one of those wanted."""
        column = self._column(field, own=own)
        return np.isin(column.codes, [code for code, value in enumerate(column.values) if value in wanted])

    def matching(self, constraint: Constraint) -> Mask:
        """Targets whose label satisfies the constraint; each value that occurs is asked once."""
        column = self._column(constraint.label, own=False)
        verdicts = np.array(
            [selectors.matches(constraint, {constraint.label: value}) for value in column.values]
            + [selectors.matches(constraint, {})],
            dtype=bool,
        )
        return np.asarray(verdicts[column.codes], dtype=bool)

    def _column(self, label: str, *, own: bool) -> _Column:
        key = f"\0{label}" if own else label
        found = self._columns.get(key)
        if found is None:
            seen: dict[str, int] = {}
            values = [getattr(facts, label) if own else facts.labels.get(label) for facts in self.targets]
            codes = [-1 if value is None else seen.setdefault(value, len(seen)) for value in values]
            found = self._columns[key] = _Column(np.array(codes, dtype=np.int64), tuple(seen))
        return found

    def _soft(self, signature: Signature) -> Vector | None:
        """Of the weights of all soft constraints the part that is met, 0 to 1."""
        weights = [_DEFAULT_WEIGHT if found.weight is None else float(found.weight) for found in signature.soft]
        if not sum(weights):
            return None
        met = sum(
            weight * self.matching(found).astype(np.float64)
            for weight, found in zip(weights, signature.soft, strict=True)
        )
        return np.asarray(met / sum(weights), dtype=np.float64)

    def _tiers(self, signature: Signature) -> NDArray[np.int64] | None:
        if not signature.prefer:
            return None
        tiers = np.full(len(self.targets), len(signature.prefer), dtype=np.int64)
        for tier in range(len(signature.prefer) - 1, -1, -1):
            tiers[self.named(signature.prefer[tier])] = tier
        return tiers
