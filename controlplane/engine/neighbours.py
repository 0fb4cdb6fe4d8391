"""Neighbours: kinds of tasks on each target, for affinity, anti-affinity, exclusive use and interference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from controlplane.cache.target_ledger import NeighbourKind
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.signature import Signature
from controlplane.engine.world import TargetRow
from controlplane.model import selectors
from controlplane.model.job import Constraint

# Numbers of tasks, a number for each named target.
TaskCounts = Sequence[int] | NDArray[np.int64]


class Neighbours:
    """`present` counts the tasks of each kind on each target."""

    def __init__(self, targets: Sequence[TargetRow]) -> None:
        self._size = len(targets)
        self.present: dict[NeighbourKind, NDArray[np.int64]] = {}
        self.tasks = np.zeros(self._size, dtype=np.int64)
        self.closed = np.zeros(self._size, dtype=bool)
        self.any_closed = False
        self.repelling: list[NeighbourKind] = []
        # Whether running work may keep tasks away which ask for no affinity, anti-affinity or exclusive use themselves.
        self.matter = False
        for row, target in enumerate(targets):
            for kind, count in target.kinds.items():
                self.add(kind, (row,), (count,))

    def copy(self) -> Neighbours:
        other = Neighbours(())
        other._size = self._size
        other.present = {kind: counts.copy() for kind, counts in self.present.items()}
        other.tasks, other.closed = self.tasks.copy(), self.closed.copy()
        other.any_closed = self.any_closed
        other.repelling, other.matter = list(self.repelling), self.matter
        return other

    def remove(
        self, kind: NeighbourKind, rows: Sequence[int] | Rows, counts: Sequence[int] | NDArray[np.int64]
    ) -> None:
        """Removes tasks which are over; a target may be named several times."""
        np.subtract.at(self.present[kind], rows, counts)
        np.subtract.at(self.tasks, rows, counts)
        if kind.exclusive:
            self.closed = np.logical_or.reduce(
                [present > 0 for other, present in self.present.items() if other.exclusive]
            )
            self.any_closed = bool(self.closed.any())

    def add(
        self, kind: NeighbourKind, rows: Sequence[int] | Rows, counts: Sequence[int] | NDArray[np.int64] | int
    ) -> None:
        """Adds `counts` tasks on each of the targets, each target named once; a plain number means the same count on
        all targets."""
        present = self.present.get(kind)
        if present is None:
            present = self.present[kind] = np.zeros(self._size, dtype=np.int64)
            if kind.anti_affinity:
                self.repelling.append(kind)
                self.matter = True
        if len(rows) == 1:
            # A single target is by far the most frequent case, and numbers are faster than vectors of length 1.
            count = counts if isinstance(counts, int) else counts[0]
            present[rows[0]] += count
            self.tasks[rows[0]] += count
        else:
            present[rows] += counts
            self.tasks[rows] += counts
        if kind.exclusive:
            self.closed[rows] = self.any_closed = self.matter = True

    def matter_to(self, signature: Signature) -> bool:
        kind = signature.kind
        return bool(signature.affinity or kind.anti_affinity or kind.exclusive or self.matter)

    def repelling_kind(self, kind: NeighbourKind) -> Iterator[Mask]:
        """Targets running work with anti-affinity to the kind."""
        for other in self.repelling:
            if any(_matches(constraint, kind) for constraint in other.anti_affinity):
                yield self.present[other] > 0

    def founds(self, signature: Signature) -> bool:
        """Whether such a task has affinity to tasks of the same kind, and no target satisfies all affinity constraints
        yet. Such a task may begin alone: targets which satisfy only a part of the constraints do not count, and the
        task would wait for ever."""
        if not signature.affinity or not all(_matches(constraint, signature.kind) for constraint in signature.affinity):
            return False
        return not np.logical_and.reduce([self.having(constraint) for constraint in signature.affinity]).any()

    def repels_itself(self, kind: NeighbourKind) -> bool:
        return any(_matches(constraint, kind) for constraint in kind.anti_affinity)

    def of_classes(self, classes: Sequence[str]) -> NDArray[np.float64]:
        """How many tasks of these classes are on each target."""
        tasks = np.zeros(self._size)
        for kind, counts in self.present.items():
            if kind.class_ in classes:
                tasks += counts
        return tasks

    def having(self, constraint: Constraint) -> Mask:
        """Targets that have a task whose labels satisfy the constraint."""
        mask = np.zeros(self._size, dtype=bool)
        for kind, counts in self.present.items():
            if _matches(constraint, kind):
                mask |= counts > 0
        return mask


def repel(signature: Signature, other: Signature) -> bool:
    """Whether tasks of the two signatures cannot be on the same target at the same time, however much room there is."""
    return kinds_repel(signature.kind, other.kind) or bool(signature.spread and signature.spread == other.spread)


def kinds_repel(kind: NeighbourKind, other: NeighbourKind) -> bool:
    if kind.exclusive or other.exclusive:
        return True
    return any(_matches(constraint, other) for constraint in kind.anti_affinity) or any(
        _matches(constraint, kind) for constraint in other.anti_affinity
    )


def _matches(constraint: Constraint, kind: NeighbourKind) -> bool:
    return selectors.matches(constraint, dict(kind.labels))
