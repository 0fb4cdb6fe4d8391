"""Kept room: room of targets set aside for work which does not fit yet, and the rest which other work may still use.

A kept target has a moment `until` at which the work for which the target is kept can begin, by the time limits of the
running work. Other work may go there when sure to be over by then, or when leaving enough room at that moment: `spare`
is the amount of each quantity left, then, beside the work for which the target is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from controlplane.engine.arrays import Counts, Mask, Rows, Vector
from controlplane.engine.neighbours import repel
from controlplane.engine.signature import Signature
from controlplane.model.quantity import EPSILON

UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class Beneficiary:
    """The order for which a target is kept, and the signature of the order's task there."""

    order: str
    signature: Signature


class KeptRoom:
    def __init__(self, size: int, limits: Vector | None) -> None:
        """`limits` are the time limits which targets give to tasks without a limit; None when no target gives a
        limit."""
        self._size = size
        self._limits = limits
        self.any = False
        # In seconds from now; -1 where a target is not kept.
        self.until = np.full(size, -1.0)
        self.spare: dict[str, Vector] = {}
        self.slots = np.full(size, UNLIMITED, dtype=np.int64)
        self.beneficiaries: dict[int, tuple[Beneficiary, ...]] = {}

    def copy(self) -> Self:
        other = object.__new__(type(self))
        other._size, other._limits, other.any = self._size, self._limits, self.any
        other.until, other.slots = self.until.copy(), self.slots.copy()
        other.spare = {name: amounts.copy() for name, amounts in self.spare.items()}
        other.beneficiaries = dict(self.beneficiaries)
        return other

    def keep(
        self, row: int, until: float, spare: Mapping[str, float], slots: int, for_whom: Iterable[Beneficiary]
    ) -> None:
        """Keeps the target for further beneficiaries; where the target is kept already, the tighter bound of both
        holds."""
        before = self.beneficiaries.get(row, ())
        self.until[row] = min(until, self.until[row]) if before else until
        for name, amount in spare.items():
            if name not in self.spare:
                self.spare[name] = np.full(self._size, np.inf)
            self.spare[name][row] = min(amount, self.spare[name][row])
        self.slots[row] = min(slots, self.slots[row])
        self.beneficiaries[row] = (*before, *for_whom)
        self.any = True

    def only_for(self, orders: Iterable[str]) -> Self:
        """A copy without the targets kept for none of these orders."""
        wanted, other = frozenset(orders), self.copy()
        for row, some in self.beneficiaries.items():
            if not any(beneficiary.order in wanted for beneficiary in some):
                other.until[row] = -1.0
                del other.beneficiaries[row]
        other.any = bool(other.beneficiaries)
        return other

    def late(self, signature: Signature, rows: Rows) -> Mask:
        """Kept targets on which such a task is not sure to be over in time."""
        until = self.until[rows]
        limit = signature.time_limit
        if limit is None and self._limits is None:
            return np.asarray(until >= 0)
        longest = float(limit) if limit is not None else self._limits[rows]  # type: ignore[index]
        return np.asarray((until >= 0) & (until < longest))

    def closed(self, signature: Signature, rows: Rows) -> Mask:
        """Kept targets which take no such task: the task would be late, and the target has no spare room for a late
        task."""
        closed = self.late(signature, rows)
        late = closed.nonzero()[0]
        if len(late):
            closed[late] = self.to_spare(signature, rows[late]) <= 0
        return closed

    def to_spare(self, signature: Signature, rows: Rows) -> Counts:
        """How many such tasks leave the kept room untouched, on each of these kept targets."""
        most = np.minimum(self.slots[rows] * signature.pack, UNLIMITED)
        for name, amount in signature.needs:
            if name in self.spare:
                fits = np.minimum((self.spare[name][rows] + EPSILON) / amount, UNLIMITED)
                most = np.minimum(most, np.floor(fits).astype(np.int64))
        for at, row in enumerate(rows.tolist()):
            if any(repel(signature, beneficiary.signature) for beneficiary in self.beneficiaries[row]):
                most[at] = 0
        return most

    def bound(self, signature: Signature, rows: Rows, fits: Counts) -> Counts:
        """How many such tasks go to each target when `fits` tasks fit by the free amounts."""
        late = self.late(signature, rows).nonzero()[0]
        if not len(late):
            return fits
        bounded = fits.copy()
        bounded[late] = np.minimum(fits[late], self.to_spare(signature, rows[late]))
        return bounded

    def take(self, signature: Signature, rows: Rows, counts: Counts) -> None:
        """Subtracts the requests of tasks which are late from the spare room."""
        late = self.late(signature, rows).nonzero()[0]
        if not len(late):
            return
        rows, counts = rows[late], counts[late]
        for name, amount in signature.needs:
            if name in self.spare:
                self.spare[name][rows] -= amount * counts
        self.slots[rows] -= -(-counts // signature.pack)

    def most_to_spare(self, name: str, free: Vector, takes: Mask) -> float:
        """The largest amount of a quantity which a late task may find on a kept target."""
        kept = takes & (self.until >= 0)
        spare = self.spare.get(name)
        there = free if spare is None else np.minimum(free, spare)
        return float(there.max(where=kept, initial=0.0))
