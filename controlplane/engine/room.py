"""Room: what is left in this cycle, target by target, and how tasks are laid into it.

Simple equivalent: for each task, of the targets that no filter refuses, take the one with the best score. This version
lays all tasks of a signature at once: best tier first, and within a tier evenly over the targets in order of score
(or, to pack, the best target full before the next). Room only ever shrinks within a cycle.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from controlplane.engine import words
from controlplane.engine.floor import Mask, Rows, Vector
from controlplane.engine.neighbours import Neighbours
from controlplane.engine.owners import Owners
from controlplane.engine.rules.ruling import Limit, Ruling
from controlplane.engine.signature import Signature
from controlplane.engine.world import World, is_open, recent_failures
from controlplane.model.quantity import Number

_EPSILON = 1e-9
_UNLIMITED = np.int64(1 << 40)
Counts = NDArray[np.int64]


class Room:
    def __init__(self, world: World) -> None:
        self.world = world
        self.floor = world.floor
        targets = world.targets
        names = sorted({name for row in targets for name in row.capacity})
        self.capacity = {name: _vector(row.capacity.get(name, 0) for row in targets) for name in names}
        self.free = {name: _vector(row.free.get(name, 0) for row in targets) for name in names}
        slots = (_UNLIMITED if row.slots is None else row.slots for row in targets)
        self.slots = np.fromiter(slots, dtype=np.int64, count=len(targets))
        self.ready = np.fromiter((row.ready for row in targets), dtype=bool, count=len(targets))
        self.opened = np.fromiter((is_open(row, world.now) for row in targets), dtype=bool, count=len(targets))
        self._takes = self.ready & self.opened
        self._all_take = bool(self._takes.all())
        self.load = self._load(self.floor.all_rows)
        self.reliability = self._reliability()
        self.neighbours = Neighbours(targets)
        self.owners = Owners(world)
        self.held = set(world.held)
        self.limited = dict(world.limited)
        # Until when a target's room is kept for somebody, in seconds from now; -1 where it is for everybody.
        self.reserved = np.full(len(targets), -1.0)
        self.any_reserved = False
        self._apart = {order: set(names) for order, names in world.spread.items()}

    def trial(self) -> Self:
        """A copy to try something on."""
        other = copy.copy(self)
        other.free = {name: amounts.copy() for name, amounts in self.free.items()}
        other.slots, other.load, other.reserved = self.slots.copy(), self.load.copy(), self.reserved.copy()
        other.neighbours = self.neighbours.copy()
        other.owners = self.owners.copy()
        other.held, other.limited = set(self.held), dict(self.limited)
        other._apart = {order: set(names) for order, names in self._apart.items()}
        return other

    def ruling(self, signature: Signature) -> Ruling | None:
        book = self.world.book
        return book.rule(signature.facts, self.floor.targets, self.world.now) if book.rules else None

    # Filters ------------------------------------------------------------------------------------------------------

    def refusals(self, signature: Signature) -> Iterator[tuple[str, Mask]]:
        """Every filter, in the order in which they are asked, with the targets that it refuses."""
        yield from self.floor.static(signature).refusals
        ruling = self.ruling(signature)
        if ruling is not None:
            yield from ((words.RULE_FORBIDS, mask) for mask in ruling.forbidden.values())
            yield from ((words.RULE_REQUIRES, ~mask) for mask in ruling.required.values())
        yield words.NOT_READY, ~self.ready
        yield words.WINDOW, ~self.opened
        yield from self.neighbours.refusals(signature)
        if signature.spread:
            yield words.SPREAD, self._together(signature)
        fits = self._fits(signature, self.floor.all_rows)
        yield words.CAPACITY, fits <= 0
        yield words.FULL, self.slots <= 0
        yield from ((words.LIMIT, mask) for mask in self._used_up(ruling))
        if self.any_reserved:
            yield words.RESERVED, self._kept_from(signature, self.floor.all_rows)

    def open_rows(self, signature: Signature) -> tuple[Rows, Counts]:
        """The targets that take at least one such task now, and how many each."""
        rows = self.floor.static(signature).rows
        if not self._all_take:
            rows = rows[self._takes[rows]]
        refusing = [mask for _, mask in self.neighbours.refusals(signature)]
        ruling = self.ruling(signature)
        if ruling is not None:
            refusing.extend(ruling.forbidden.values())
            refusing.extend(~mask for mask in ruling.required.values())
            refusing.extend(self._used_up(ruling))
        if signature.spread:
            refusing.append(self._together(signature))
        for mask in refusing:
            rows = rows[~mask[rows]]
        if self.any_reserved:
            rows = rows[~self._kept_from(signature, rows)]
        fits = np.minimum(self._fits(signature, rows), self.slots[rows])
        if signature.single or self.neighbours.repels_itself(signature.kind):
            fits = np.minimum(fits, 1)
        able = fits > 0
        return (rows, fits) if able.all() else (rows[able], fits[able])

    def _fits(self, signature: Signature, rows: Rows) -> Counts:
        """How many such tasks go into what is free. A quantity that no target has fits nowhere."""
        everywhere = rows is self.floor.all_rows
        most: Vector | None = None
        for name, amount in signature.needs:
            free = self.free.get(name)
            if free is None:
                return np.zeros(len(rows), dtype=np.int64)
            fits = ((free if everywhere else free[rows]) + _EPSILON) // amount
            most = fits if most is None else np.minimum(most, fits)
        return np.full(len(rows), _UNLIMITED) if most is None else most.astype(np.int64)

    def holds(self, signature: Signature, row: int) -> bool:
        """Whether the target could take one such task if it were empty."""
        capacity = self.world.targets[row].capacity
        return all(capacity.get(name, 0) + _EPSILON >= amount for name, amount in signature.needs)

    def _together(self, signature: Signature) -> Mask:
        mask = np.zeros(len(self.floor.targets), dtype=bool)
        taken = (self.floor.row(name) for name in self._apart.get(signature.spread, ()))
        mask[[row for row in taken if row is not None]] = True
        return mask

    def _kept_from(self, signature: Signature, rows: Rows) -> Mask:
        """Targets whose room is kept for somebody, unless such a task is sure to end before it is needed."""
        until = self.reserved[rows]
        kept = until >= 0
        if signature.time_limit is None:
            return np.asarray(kept)
        return np.asarray(kept & (until < float(signature.time_limit)))

    # Scores -------------------------------------------------------------------------------------------------------

    def score(self, signature: Signature, rows: Rows) -> Vector:
        """The higher the better. Each part is 0 to 1 (rules: -1 to 1) times its weight."""
        weights = self.world.settings.weights
        load = self.load[rows]
        score = float(weights.room) * (load if self.world.settings.placement == "pack" else 1.0 - load)
        soft = self.floor.static(signature).soft
        if soft is not None:
            score += float(weights.soft) * soft[rows]
        if self.reliability is not None:
            score += float(weights.reliability) * self.reliability[rows]
        ruling = self.ruling(signature)
        if ruling is not None:
            score += float(weights.rules) * ruling.prefer[rows]
        if signature.hurt_by:
            hurting = self.neighbours.of_classes(signature.hurt_by)[rows]
            score += float(weights.interference) / (1.0 + hurting)
        return np.asarray(score, dtype=np.float64)

    def _reliability(self) -> Vector | None:
        memory, now = self.world.settings.failure_memory, self.world.now
        failed = [recent_failures(row, now, memory) for row in self.world.targets]
        return 1.0 / (1.0 + np.array(failed, dtype=np.float64)) if any(failed) else None

    def _load(self, rows: Rows) -> Vector:
        """How full the targets are: of all their quantities the fullest, 0 to 1."""
        load = np.zeros(len(rows))
        for name, capacity in self.capacity.items():
            most = capacity[rows]
            used = 1.0 - self.free[name][rows] / np.where(most > 0, most, 1.0)
            np.maximum(load, np.where(most > 0, used, 0.0), out=load)
        return load

    # Laying -------------------------------------------------------------------------------------------------------

    def place(self, signature: Signature, most: int) -> list[tuple[int, int]]:
        """Takes room for up to `most` tasks, as (row, count); fewer when no more fit."""
        laid: list[tuple[int, int]] = []
        while most:
            some = min(most, self.allowance(signature))
            rows, fits = self.open_rows(signature) if some else (self.floor.all_rows[:0], np.zeros(0, dtype=np.int64))
            if not len(rows):
                break
            if self.neighbours.founds(signature):
                # The first of a kind that wants its own kind around: all go where the first one goes.
                best = int(np.argmax(self._ranking(signature, rows)))
                rows, fits = rows[best : best + 1], fits[best : best + 1]
            round_ = self._lay(signature, rows, fits, some)
            for row, count in round_:
                self.take(signature, row, count)
            laid.extend(round_)
            most -= sum(count for _, count in round_)
        return laid

    def allowance(self, signature: Signature) -> int:
        """How many such tasks may be placed at once, room apart: unique resources and limits of rules."""
        if signature.unique:
            return 0 if any(name in self.held for name in signature.unique) else 1
        ruling = self.ruling(signature)
        left = [self._left(limit) for limit in ruling.limits] if ruling is not None else []
        # Those that are used up refuse targets, of which there may be others.
        return min((some for some in left if some > 0), default=int(_UNLIMITED))

    def _left(self, limit: Limit) -> int:
        return limit.most - self.limited.get(limit.name, 0)

    def _used_up(self, ruling: Ruling | None) -> Iterator[Mask]:
        return (limit.mask for limit in (ruling.limits if ruling is not None else ()) if self._left(limit) <= 0)

    def _ranking(self, signature: Signature, rows: Rows) -> Vector:
        score = self.score(signature, rows)
        tiers = self.floor.static(signature).tiers
        return score if tiers is None else score - 1e6 * tiers[rows]

    def _lay(self, signature: Signature, rows: Rows, fits: Counts, most: int) -> list[tuple[int, int]]:
        ranking = self._ranking(signature, rows)
        if most == 1:
            return [(int(rows[int(np.argmax(ranking))]), 1)]
        tiers = self.floor.static(signature).tiers
        if tiers is not None:
            best = tiers[rows] == tiers[rows].min()
            rows, fits, ranking = rows[best], fits[best], ranking[best]
        share = most if self.world.settings.placement == "pack" else -(-most // len(rows))
        order = np.argsort(-ranking, kind="stable")
        each = np.minimum(fits[order], share)
        before = np.cumsum(each) - each
        taken = np.clip(most - before, 0, each)
        chosen = np.flatnonzero(taken)
        return list(zip(rows[order[chosen]].tolist(), taken[chosen].tolist(), strict=True))

    def take(self, signature: Signature, row: int, count: int) -> None:
        load = self.load[row]
        for name, amount in signature.needs:
            free = self.free[name]
            free[row] -= amount * count
            capacity = self.capacity[name][row]
            if capacity > 0:
                load = max(load, 1.0 - free[row] / capacity)
        self.load[row] = load
        self.slots[row] -= count
        self.neighbours.add(signature.kind, row, count)
        self.held.update(signature.unique)
        if signature.spread:
            self._apart.setdefault(signature.spread, set()).add(self.floor.targets[row].name)
        ruling = self.ruling(signature)
        for limit in ruling.limits if ruling is not None else ():
            if limit.mask[row]:
                self.limited[limit.name] = self.limited.get(limit.name, 0) + count

    def reserve(self, row: int, until: float) -> None:
        self.reserved[row] = max(self.reserved[row], until)
        self.any_reserved = True


def _vector(amounts: Iterator[Number]) -> Vector:
    return np.fromiter(amounts, dtype=np.float64)
