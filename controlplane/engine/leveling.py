"""Leveling: so many equal tasks onto targets, so that the fullest is as empty as can be.

Simple equivalent: one task at a time, each to the target with the best score for one task more, of equals the first.
The score of a target falls with every task, so these are the best of all steps (target, n-th task there). This
version finds them at once: the worst score that can be needed bounds how many steps of each target have to be looked
at. Where one target could take very many of them, a level is searched that most of the tasks reach, and the rest goes
on from there.

A step is one task, or as many as share a fulfilment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controlplane.engine import scoring
from controlplane.engine.floor import Rows, Vector
from controlplane.engine.kept import UNLIMITED, Counts
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature

_MOST_STEPS = 4096
_HALVINGS = 60
_EPSILON = 1e-9


def even(room: Room, signature: Signature, rows: Rows, most: int) -> tuple[Rows, Counts | int]:
    """Of these open targets, which get how many of up to `most` such tasks; one number where all get the same."""
    unit = signature.pack
    if unit > 1:
        # Whole fulfilments, as far as there is room; what is left of them is for another pass.
        fits = room.fits(signature, rows)
        unit = min(unit, most, int(fits.max()))
        rows = rows[fits >= unit]
    static = room.floor.static(signature)
    others = None if scoring.is_plain(room, signature, static) else scoring.others(room, signature, rows, static)
    if others is not None and not room.weight:
        # Room decides only between targets that are equal in everything else.
        rows, others = rows[others == others.max()], None
    rows, steps = _Slope(room, signature, rows, unit, room.weight, others).lay(most // unit)
    return rows, steps if unit == 1 else steps * unit


@dataclass(frozen=True, slots=True)
class _Slope:
    """How the scores of targets fall with each step. `others` is the part of them that does not; None when there is no
    such part, so that whatever sorts like the room will do."""

    room: Room
    signature: Signature
    rows: Rows
    unit: int
    weight: float
    others: Vector | None

    def lay(self, steps: int) -> tuple[Rows, Counts | int]:
        """Which targets get how many steps; fewer in all when no more fit.

        Only targets count whose first step is as good as the worst step that can be needed.
        """
        first = self.rank(None, self.unit)
        if steps >= len(first):
            return self._chosen(np.arange(len(first)), self._search(np.arange(len(first)), steps))
        least = _highest(first, steps)
        good = first >= least
        again = self._again(first, least)
        if len(again):
            near = good.nonzero()[0]
            taken = self._some_again(near, first[near], np.searchsorted(near, again), least, steps)
            return self._chosen(near, self._search(near, steps) if taken is None else taken)
        surplus = int(np.count_nonzero(good)) - steps
        if surplus > 0:
            # Of equals the first.
            good[(first == least).nonzero()[0][-surplus:]] = False
        return self.rows[good], 1

    def _again(self, first: Vector, least: float) -> Rows:
        """Targets whose second step is as good as the worst step that can be needed. A step costs at least as much as
        it does on the largest target, so few have to be looked at."""
        if self.others is None and len(self.signature.needs) == len(self.room.free):
            step = min(amount * self.room.least_inverse[name] for name, amount in self.signature.needs)
            least_first = least + step * self.unit - _EPSILON
        else:
            least_first = least
        few = (first >= least_first).nonzero()[0]
        return few[self.rank(few, 2 * self.unit) >= least] if len(few) else few

    def _chosen(self, near: Rows, taken: Counts) -> tuple[Rows, Counts]:
        chosen = taken.nonzero()[0]
        return self.rows[near[chosen]], taken[chosen]

    def _some_again(self, near: Rows, first: Vector, again: Rows, least: float, steps: int) -> Counts | None:
        """As many steps as there are good first ones, of which some targets may take more than one; None when those
        could take very many."""
        reach = self._reach(near[again], least, _EPSILON) + 1
        reach = np.clip(np.minimum(reach, self._fits(near[again])), 1, steps) - 1
        if int(reach.sum()) > _MOST_STEPS:
            return None
        of = np.repeat(again, reach)
        turn = np.arange(len(of)) - np.repeat(reach.cumsum() - reach, reach) + 2
        ranks = np.concatenate([first, self.rank(near[of], self.unit * turn)])
        of = np.concatenate([np.arange(len(near)), of])
        worst = _highest(ranks, steps)
        better, equal = (ranks > worst).nonzero()[0], (ranks == worst).nonzero()[0]
        if len(better) + len(equal) > steps:
            # Of equals the first target, and of one target the first step.
            equal = equal[of[equal].argsort(kind="stable")[: steps - len(better)]]
        return np.bincount(np.concatenate([of[better], of[equal]]), minlength=len(near))

    def _search(self, near: Rows, steps: int) -> Counts:
        """How many steps go to each of these targets, whatever they take."""
        fits = np.minimum(self._fits(near), steps)
        taken = np.zeros(len(near), dtype=np.int64)
        while steps > 0 and (open_ := (taken < fits).nonzero()[0]).size:
            ranks = self.rank(near[open_], self.unit * (taken[open_] + 1))
            least = float(ranks.min()) if steps >= len(ranks) else _highest(ranks, steps)
            good = open_[ranks >= least]
            reach = self._reach(near[good], least, _EPSILON) - taken[good] + 1
            reach = np.clip(reach, 1, np.minimum(fits[good] - taken[good], steps))
            if int(reach.sum()) > 4 * steps + _MOST_STEPS:
                granted = self._bulk(near[good], taken[good], fits[good], least, float(ranks.max()), steps)
            else:
                granted = self._best_steps(near[good], taken[good], reach, least, steps)
            taken[good] += granted
            steps -= int(granted.sum())
        return taken

    def _best_steps(self, near: Rows, taken: Counts, reach: Counts, least: float, steps: int) -> Counts:
        """Of the next steps of each target, as many as reach says, the best of those that are at least so good."""
        of = np.repeat(np.arange(len(near)), reach)
        turn = np.arange(len(of)) - np.repeat(reach.cumsum() - reach, reach) + 1 + taken[of]
        ranks = self.rank(near[of], self.unit * turn)
        good = ranks >= least
        of, ranks = of[good], ranks[good]
        return np.bincount(of if len(of) <= steps else of[_best(ranks, steps)], minlength=len(near))

    def _bulk(self, near: Rows, taken: Counts, fits: Counts, least: float, best: float, steps: int) -> Counts:
        """Steps that are surely among the best: all above a level that no more than so many reach."""
        low, high = least, best
        for _ in range(_HALVINGS):
            level = (low + high) / 2
            if int(self._above(near, taken, fits, level).sum()) > steps:
                low = level
            else:
                high = level
        granted = self._above(near, taken, fits, high)
        if not granted.any():
            granted[int(self.rank(near, self.unit * (taken + 1)).argmax())] = 1
        return granted

    def _above(self, near: Rows, taken: Counts, fits: Counts, level: float) -> Counts:
        return np.asarray(np.clip(self._reach(near, level, -_EPSILON) - taken, 0, fits - taken))

    def _fits(self, near: Rows) -> Counts:
        fits = self.room.fits(self.signature, self.rows[near])
        return fits if self.unit == 1 else fits // self.unit

    def rank(self, at: Rows | None, more: Counts | int) -> Vector:
        """What sorts these targets, or all, like their score with so many tasks more."""
        rows = self.rows if at is None else self.rows[at]
        if self.others is None:
            return scoring.order_with(self.room, self.signature, rows, more)
        others = self.others if at is None else self.others[at]
        return self.weight * scoring.idle_with(self.room, self.signature, rows, more) + others

    def _reach(self, at: Rows, level: float, slack: float) -> Counts:
        """How many steps have a rank of at least the level, but for the slack."""
        room, rows = self.room, self.rows[at]
        wanted: Vector | float = level if self.others is None else (level - self.others[at]) / self.weight
        if self.others is not None or len(self.signature.needs) < len(room.free):
            # What has to be idle of the quantities that are asked for, so that this much is idle in all.
            idle, all_ = room.idle[rows], 1.0 + scoring.ASKED
            wanted = np.where(idle * all_ >= wanted, wanted / all_, (wanted - idle) / scoring.ASKED)
        most: Vector | None = None
        for name, amount in self.signature.needs:
            steps = (room.free[name][rows] - wanted * room.capacity[name][rows]) / (amount * self.unit)
            most = steps if most is None else np.minimum(most, steps)
        assert most is not None
        return np.clip(np.floor(most + slack), 0, UNLIMITED).astype(np.int64)


def _highest(ranks: Vector, most: int) -> float:
    """The lowest of the so many highest ranks."""
    parted = ranks.copy()
    parted.partition(len(parted) - most)
    return float(parted[len(parted) - most])


def _best(ranks: Vector, most: int) -> Rows:
    """Where the so many highest ranks are, in the order in which they stand; of equals the first."""
    least = _highest(ranks, most)
    chosen = ranks >= least
    surplus = int(chosen.sum()) - most
    if surplus > 0:
        chosen[(ranks == least).nonzero()[0][-surplus:]] = False
    return np.asarray(chosen.nonzero()[0])
