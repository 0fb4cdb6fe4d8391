"""Neighbours: who is on which target already, for affinity, anti-affinity, exclusive use and interference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from controlplane.cache.target_ledger import Kind
from controlplane.engine import words
from controlplane.engine.floor import Mask, Rows
from controlplane.engine.signature import Signature
from controlplane.engine.world import TargetRow
from controlplane.model import selectors
from controlplane.model.job import Constraint


class Neighbours:
    """`present` counts the tasks of each kind on each target."""

    def __init__(self, targets: Sequence[TargetRow]) -> None:
        self._size = len(targets)
        self.present: dict[Kind, NDArray[np.int64]] = {}
        self.tasks = np.zeros(self._size, dtype=np.int64)
        self.closed = np.zeros(self._size, dtype=bool)
        self._any_closed = False
        self._repelling: list[Kind] = []
        for row, target in enumerate(targets):
            for kind, count in target.kinds.items():
                self.add(kind, (row,), (count,))

    def copy(self) -> Neighbours:
        other = Neighbours(())
        other._size = self._size
        other.present = {kind: counts.copy() for kind, counts in self.present.items()}
        other.tasks, other.closed = self.tasks.copy(), self.closed.copy()
        other._any_closed = self._any_closed
        other._repelling = list(self._repelling)
        return other

    def remove(self, kind: Kind, rows: Sequence[int] | Rows, counts: Sequence[int] | NDArray[np.int64]) -> None:
        """Tasks that are over; a target may be named several times."""
        np.subtract.at(self.present[kind], rows, counts)
        np.subtract.at(self.tasks, rows, counts)
        if kind.exclusive:
            self.closed = np.logical_or.reduce([found > 0 for one, found in self.present.items() if one.exclusive])
            self._any_closed = bool(self.closed.any())

    def add(self, kind: Kind, rows: Sequence[int] | Rows, counts: Sequence[int] | NDArray[np.int64] | int) -> None:
        """So many tasks on each of the targets, which are named once; one number where it is the same of all."""
        found = self.present.get(kind)
        if found is None:
            found = self.present[kind] = np.zeros(self._size, dtype=np.int64)
            if kind.anti_affinity:
                self._repelling.append(kind)
        if len(rows) == 1:
            # Much the most frequent, and numbers are faster than vectors of one.
            count = counts if isinstance(counts, int) else counts[0]
            found[rows[0]] += count
            self.tasks[rows[0]] += count
        else:
            found[rows] += counts
            self.tasks[rows] += counts
        if kind.exclusive:
            self.closed[rows] = self._any_closed = True

    def matter_to(self, signature: Signature) -> bool:
        kind = signature.kind
        asks = signature.affinity or kind.anti_affinity or kind.exclusive
        return bool(asks or self._any_closed or self._repelling)

    def refusals(self, signature: Signature) -> Iterator[tuple[str, Mask]]:
        if signature.affinity and not self.founds(signature):
            for constraint in signature.affinity:
                yield words.AFFINITY, ~self._with(constraint)
        for constraint in signature.kind.anti_affinity:
            yield words.ANTI_AFFINITY, self._with(constraint)
        for kind in self._repelling:
            if any(_matches(constraint, signature.kind) for constraint in kind.anti_affinity):
                yield words.ANTI_AFFINITY, self.present[kind] > 0
        if signature.kind.exclusive:
            yield words.EXCLUSIVE, self.tasks > 0
        elif self._any_closed:
            yield words.EXCLUSIVE, self.closed

    def founds(self, signature: Signature) -> bool:
        """Whether such a task wants its own kind around, and no target has all the company that it asks for: strangers
        who satisfy a part of it are not the company, and it would wait for ever."""
        if not signature.affinity or not all(_matches(one, signature.kind) for one in signature.affinity):
            return False
        return not np.logical_and.reduce([self._with(one) for one in signature.affinity]).any()

    def repels_itself(self, kind: Kind) -> bool:
        return any(_matches(constraint, kind) for constraint in kind.anti_affinity)

    def of_classes(self, classes: Sequence[str]) -> NDArray[np.float64]:
        """How many tasks of these classes are on each target."""
        found = np.zeros(self._size)
        for kind, counts in self.present.items():
            if kind.class_ in classes:
                found += counts
        return found

    def _with(self, constraint: Constraint) -> Mask:
        """Targets that have a task whose labels satisfy the constraint."""
        mask = np.zeros(self._size, dtype=bool)
        for kind, counts in self.present.items():
            if _matches(constraint, kind):
                mask |= counts > 0
        return mask


def repel(one: Signature, other: Signature) -> bool:
    """Whether tasks of the two cannot be on one target at the same time, whatever its room."""
    return kinds_repel(one.kind, other.kind) or bool(one.spread and one.spread == other.spread)


def kinds_repel(one: Kind, other: Kind) -> bool:
    if one.exclusive or other.exclusive:
        return True
    return any(_matches(constraint, other) for constraint in one.anti_affinity) or any(
        _matches(constraint, one) for constraint in other.anti_affinity
    )


def _matches(constraint: Constraint, kind: Kind) -> bool:
    return selectors.matches(constraint, dict(kind.labels))
