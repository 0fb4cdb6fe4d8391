"""Leveling: a number of equal tasks onto targets, so that the fullest target is as empty as possible.

Simple equivalent: one task at a time, each to the target with the best score for a further task, of equals the first.
The score of a target falls with every task, so the chosen steps are the best of all steps (target, n-th task there).
This version finds the best steps at once: the worst score which can be needed bounds how many steps of each target
have to be looked at. Where a single target could take very many steps, a score level reached by most of the steps is
searched first, and the remaining steps are chosen from there.

A step is a single task, or as many tasks as share a fulfilment.
"""

from __future__ import annotations

import msgspec
import numpy as np

from controlplane.engine import scoring
from controlplane.engine.arrays import Counts, Rows, Vector
from controlplane.engine.kept import UNLIMITED
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature
from controlplane.model.quantity import EPSILON

_MOST_STEPS = 4096
# Beyond so many steps of a single target, a score level is searched instead of going from step to step.
_MOST_TURNS = 16
_HALVINGS = 60


def even(room: Room, signature: Signature, rows: Rows, most: int) -> tuple[Rows, Counts | int]:
    """Of these open targets, which get how many of up to `most` such tasks; a plain number where all chosen targets get
    the same number of tasks."""
    unit = signature.pack
    if unit > 1:
        # Whole fulfilments, as far as there is room; the remaining tasks are laid in another pass.
        fits = room.fits(signature, rows)
        unit = min(unit, most, int(fits.max()))
        rows = rows[fits >= unit]
    static = room.floor.static(signature)
    others = None if scoring.is_plain(room, signature, static) else scoring.others(room, signature, rows)
    if others is not None and not room.weight:
        # Room decides only between targets that are equal in everything else.
        rows, others = rows[others == others.max()], None
    rows, steps = _Slope(room, signature, rows, unit, room.weight, others).lay(most // unit)
    return rows, steps if unit == 1 else steps * unit


class _Slope(msgspec.Struct, frozen=True, eq=False, gc=False):
    """How the scores of targets fall with each step. `others` is the constant part of the scores; None when there is no
    such part, so any value with the sort order of the room's score is sufficient."""

    room: Room
    signature: Signature
    rows: Rows
    unit: int
    weight: float
    others: Vector | None

    def lay(self, steps: int) -> tuple[Rows, Counts | int]:
        """Which targets get how many steps; fewer in all when no more fit.

        Only targets count whose first step is as good as the worst step which can be needed.
        """
        first = self.rank(None, self.unit)
        if steps >= len(first):
            return self._chosen(np.arange(len(first)), self._search(np.arange(len(first)), steps))
        least = _highest(first, steps)
        again, second = self._again(first, least)
        if not len(again):
            return self._rows_at(_best(first, least, steps)), 1
        near = (first >= least).nonzero()[0]
        further = self._further(again, second, least)
        if further is None:
            return self._chosen(near, self._search(near, steps))
        taken = _best_steps_of(near, first[near], *further, steps, len(self.rows))
        chosen = taken.nonzero()[0]
        return self._rows_at(chosen), taken[chosen]

    def _rows_at(self, at: Rows) -> Rows:
        return at if self.rows is self.room.floor.all_rows else self.rows[at]

    def _again(self, first: Vector, least: float) -> tuple[Rows, Vector]:
        """Targets whose second step is as good as the worst step which can be needed, and the rank of that step. A step
        costs at least as much as on the largest target, so few targets have to be looked at."""
        if self.others is None and len(self.signature.needs) == len(self.room.free):
            step = min(amount * self.room.least_inverse[name] for name, amount in self.signature.needs)
            least_first = least + step * self.unit - EPSILON
        else:
            least_first = least
        few = (first >= least_first).nonzero()[0]
        if not len(few):
            return few, first[:0]
        second = self.rank(few, 2 * self.unit)
        good = second >= least
        return few[good], second[good]

    def _further(self, again: Rows, second: Vector, least: float) -> tuple[Rows, Vector] | None:
        """The second and later steps which are as good as the worst step which can be needed: target and rank of each
        step. None when a target takes very many steps."""
        fits = None if least >= 0 and not self.room.bounds(self.signature) else self._fits(again)
        of, ranks = [], []
        rank = second
        for turn in range(2, _MOST_TURNS):
            if fits is not None:
                good = fits >= turn
                again, rank, fits = again[good], rank[good], fits[good]
            of.append(again)
            ranks.append(rank)
            rank = self.rank(again, self.unit * (turn + 1))
            good = rank >= least
            if not good.any():
                return np.concatenate(of), np.concatenate(ranks)
            again, rank = again[good], rank[good]
            fits = fits[good] if fits is not None else None
        return None

    def _chosen(self, near: Rows, taken: Counts) -> tuple[Rows, Counts]:
        chosen = taken.nonzero()[0]
        return self.rows[near[chosen]], taken[chosen]

    def _search(self, near: Rows, steps: int) -> Counts:
        """How many steps go to each of these targets, for any number of steps per target."""
        fits = np.minimum(self._fits(near), steps)
        taken = np.zeros(len(near), dtype=np.int64)
        while steps > 0 and (open_ := (taken < fits).nonzero()[0]).size:
            ranks = self.rank(near[open_], self.unit * (taken[open_] + 1))
            least = float(ranks.min()) if steps >= len(ranks) else _highest(ranks, steps)
            good = open_[ranks >= least]
            reach = self._reach(near[good], least, EPSILON) - taken[good] + 1
            reach = np.clip(reach, 1, np.minimum(fits[good] - taken[good], steps))
            if int(reach.sum()) > 4 * steps + _MOST_STEPS:
                granted = self._bulk(near[good], taken[good], fits[good], least, float(ranks.max()), steps)
            else:
                granted = self._best_steps(near[good], taken[good], reach, least, steps)
            taken[good] += granted
            steps -= int(granted.sum())
        return taken

    def _best_steps(self, near: Rows, taken: Counts, reach: Counts, least: float, steps: int) -> Counts:
        """How many of the best steps each target gets. The candidates are the next `reach` steps of each target with a
        rank of at least `least`."""
        of = np.repeat(np.arange(len(near)), reach)
        turn = np.arange(len(of)) - np.repeat(reach.cumsum() - reach, reach) + 1 + taken[of]
        ranks = self.rank(near[of], self.unit * turn)
        good = ranks >= least
        of, ranks = of[good], ranks[good]
        if len(of) > steps:
            of = of[_best(ranks, _highest(ranks, steps), steps)]
        return np.bincount(of, minlength=len(near))

    def _bulk(self, near: Rows, taken: Counts, fits: Counts, least: float, best: float, steps: int) -> Counts:
        """Steps which are surely among the best: all steps above a score level reached by at most `steps` steps."""
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
        return np.asarray(np.clip(self._reach(near, level, -EPSILON) - taken, 0, fits - taken))

    def _fits(self, near: Rows) -> Counts:
        fits = self.room.fits(self.signature, self.rows[near])
        return fits if self.unit == 1 else fits // self.unit

    def rank(self, at: Rows | None, more: Counts | int) -> Vector:
        """Values which sort these targets, or all targets, like the score with so many tasks more."""
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
            # From the wanted idle part of all quantities, derive the idle part needed of the requested quantities.
            idle, all_ = room.idle[rows], 1.0 + scoring.ASKED
            wanted = np.where(idle * all_ >= wanted, wanted / all_, (wanted - idle) / scoring.ASKED)
        most: Vector | None = None
        for name, amount in self.signature.needs:
            steps = (room.free[name][rows] - wanted * room.capacity[name][rows]) / (amount * self.unit)
            most = steps if most is None else np.minimum(most, steps)
        assert most is not None
        return np.clip(np.floor(most + slack), 0, UNLIMITED).astype(np.int64)


def _best_steps_of(near: Rows, first: Vector, of: Rows, further: Vector, steps: int, size: int) -> Counts:
    """How many of the best steps each target gets, from the first steps of the near targets and the further steps."""
    ranks = np.concatenate([first, further])
    of = np.concatenate([near, of])
    worst = _highest(ranks, steps)
    best = ranks >= worst
    surplus = int(np.count_nonzero(best)) - steps
    if surplus > 0:
        # Of equals the first target, and of one target the first step.
        equal = (ranks == worst).nonzero()[0]
        best[equal[of[equal].argsort(kind="stable")[-surplus:]]] = False
    return np.bincount(of[best], minlength=size)


def _highest(ranks: Vector, most: int) -> float:
    """The lowest of the `most` highest ranks."""
    # Leveled targets share a few ranks. Sorting such values is as fast as partitioning them, and on some processors
    # twice as fast.
    ordered = ranks.copy()
    ordered.sort()
    return float(ordered[-most])


def _best(ranks: Vector, least: float, most: int) -> Rows:
    """The positions of the `most` highest ranks, of which `least` is the lowest, in ascending order; of equal ranks the
    first."""
    chosen = ranks >= least
    surplus = int(np.count_nonzero(chosen)) - most
    if surplus > 0:
        chosen[(ranks == least).nonzero()[0][-surplus:]] = False
    return np.asarray(chosen.nonzero()[0])
