"""Room: what is left in this cycle, target by target: which targets take a task, which filter refuses it.

Room only ever shrinks within a cycle. How tasks are laid into it is told in `laying`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from controlplane.engine import words
from controlplane.engine.ends import Ends
from controlplane.engine.floor import Mask, Rows, Vector
from controlplane.engine.kept import UNLIMITED, Counts, KeptRoom
from controlplane.engine.neighbours import Neighbours
from controlplane.engine.owners import Owners
from controlplane.engine.rules.ruling import Limit, Ruling
from controlplane.engine.signature import Signature
from controlplane.engine.world import World, is_open, recent_failures
from controlplane.model.quantity import Number

_EPSILON = 1e-9
_UNLIMITED = np.int64(UNLIMITED)


class Room:
    def __init__(self, world: World) -> None:
        self.world = world
        self.floor = world.floor
        targets = world.targets
        names = sorted({name for row in targets for name in row.capacity})
        self.capacity = {name: _vector(row.capacity.get(name, 0) for row in targets) for name in names}
        self.inverse = {name: _inverse(capacity) for name, capacity in self.capacity.items()}
        # Of each quantity the part that one of it is of the largest target.
        self.least_inverse = {
            name: 1.0 / max(float(most.max(initial=0.0)), 1.0) for name, most in self.capacity.items()
        }
        # How many quantities each target has anything of.
        self.quantities = np.maximum(sum((most > 0 for most in self.capacity.values()), np.zeros(len(targets))), 1.0)
        self.free = {name: _vector(row.free.get(name, 0) for row in targets) for name in names}
        slots = (_UNLIMITED if row.slots is None else row.slots for row in targets)
        self.slots = np.fromiter(slots, dtype=np.int64, count=len(targets))
        self.ready = np.fromiter((row.ready for row in targets), dtype=bool, count=len(targets))
        self.opened = np.fromiter((is_open(row, world.now) for row in targets), dtype=bool, count=len(targets))
        self._takes: Mask = self.ready & self.opened
        self._all_take = bool(self._takes.all())
        self.slotted = any(row.slots is not None for row in targets)
        self.ruled = bool(world.book.rules)
        # Of all quantities of a target the smallest part that is free, 0 to 1.
        self.idle = self._idle()
        self.reliability = self._reliability()
        # Of the settings what every task is asked about: how much room counts, and whether to pack.
        self.weight = float(world.settings.weights.room)
        self.packs = world.settings.placement == "pack"
        # Whether nothing but room and what the signature itself says makes one target better than another.
        self.plain = self.reliability is None and not self.ruled
        self.neighbours = Neighbours(targets)
        self.owners = Owners(world)
        self.held = set(world.held)
        self.limited = dict(world.limited)
        # The most of each quantity that a task finds on any target: one that may be late for those that targets are
        # kept for, and one that has a time limit. Room only shrinks, so what was worked out before stays true, if
        # less and less sharp.
        self._ceiling: dict[str, float] = {}
        self._ceiling_in_time: dict[str, float] = {}
        self._blunt = True
        self.kept = KeptRoom(len(targets), _limits(world))
        self._limited_by_targets = any(row.default_time_limit is not None for row in targets)
        self._apart = {order: set(names) for order, names in world.spread.items()}
        self.sharpen()

    @cached_property
    def ends(self) -> Ends:
        """When what runs is over. A copy of the room shares it: nothing that is tried changes what runs."""
        return Ends([row.ends for row in self.world.targets], self.world.now)

    def keep_apart(self, order: str, targets: Iterable[str]) -> None:
        """Where tasks of an order are that keep away from each other, for who did not know when looking."""
        self._apart[order] = set(targets)

    def trial(self) -> Self:
        """A copy to try something on."""
        other = copy.copy(self)
        other.free = {name: amounts.copy() for name, amounts in self.free.items()}
        other.slots, other.idle, other.kept = self.slots.copy(), self.idle.copy(), self.kept.copy()
        other.neighbours = self.neighbours.copy()
        other.owners = self.owners.copy()
        other.held, other.limited = set(self.held), dict(self.limited)
        other._apart = {order: set(names) for order, names in self._apart.items()}
        return other

    def apart(self, order: str) -> frozenset[str]:
        """The targets that have tasks of an order that keeps its tasks apart."""
        return frozenset(self._apart.get(order, ()))

    def ruling(self, signature: Signature) -> Ruling:
        book = self.world.book
        return book.rule(signature.facts, self.floor.targets, self.world.now)

    # Filters ------------------------------------------------------------------------------------------------------

    def refusals(self, signature: Signature) -> Iterator[tuple[str, Mask]]:
        """Every filter, in the order in which they are asked, with the targets that it refuses."""
        yield from self.floor.static(signature).refusals
        ruling = self.ruling(signature)
        yield from ((words.RULE_FORBIDS, mask) for mask in ruling.forbidden.values())
        yield from ((words.RULE_REQUIRES, ~mask) for mask in ruling.required.values())
        yield words.NOT_READY, ~self.ready
        yield words.WINDOW, ~self.opened
        if signature.detour.avoid:
            yield words.AVOIDED, self._avoided(signature)
        yield from self.neighbours.refusals(signature)
        if signature.spread:
            yield words.SPREAD, self._together(signature)
        yield words.CAPACITY, ~self.able(signature, self.floor.all_rows)
        yield words.FULL, self.slots <= 0
        yield from ((words.LIMIT, mask) for mask in self._used_up(ruling))
        if self.kept.any:
            yield words.RESERVED, self.kept.closed(signature, self.floor.all_rows)

    def hopeless(self, signature: Signature) -> bool:
        """Whether it is plain without looking at targets that none has enough free for one such task."""
        in_time = signature.time_limit is not None or self._limited_by_targets
        ceiling = self._ceiling_in_time if in_time else self._ceiling
        for name, amount in signature.needs:  # noqa: SIM110 - asked for every group
            if amount - _EPSILON > ceiling.get(name, 0.0):
                return True
        return False

    def sharpen(self) -> None:
        """Called when something did not fit, since the same is likely of what comes next."""
        if not self._blunt or not len(self.slots):
            return
        self._blunt = False
        takes, kept = self._takes, self.kept
        self._ceiling_in_time = {name: float(free.max(where=takes, initial=0.0)) for name, free in self.free.items()}
        self._ceiling = self._ceiling_in_time
        if kept.any:
            open_ = takes & (kept.until < 0)
            self._ceiling = {
                name: max(float(free.max(where=open_, initial=0.0)), kept.most_to_spare(name, free, takes))
                for name, free in self.free.items()
            }

    def shrunk(self) -> None:
        """Called when there is less room than there was."""
        self._blunt = True

    def widen(self) -> None:
        """Called when there is more room than there was."""
        self._blunt = True
        self.sharpen()

    def willing(self, signature: Signature) -> Rows:
        """The targets that refuse such a task for want of room at most."""
        rows = self.floor.static(signature).rows
        if not self._all_take:
            rows = rows[self._takes[rows]]
        if self.neighbours.matter_to(signature):
            for _, mask in self.neighbours.refusals(signature):
                rows = rows[~mask[rows]]
        if self.ruled:
            ruling = self.ruling(signature)
            for mask in (*ruling.forbidden.values(), *(~mask for mask in ruling.required.values())):
                rows = rows[~mask[rows]]
        if signature.spread:
            rows = rows[~self._together(signature)[rows]]
        if signature.detour.avoid:
            rows = rows[~self._avoided(signature)[rows]]
        return rows

    def open_rows(self, signature: Signature) -> Rows:
        """The targets that take at least one such task now."""
        rows = self.unkept(signature, self.willing(signature))
        if self.slotted:
            rows = rows[self.at(self.slots, rows) > 0]
        able = self.able(signature, rows)
        return rows if able.all() else rows[able]

    def fits(self, signature: Signature, rows: Rows) -> Counts:
        """How many such tasks each of these open targets takes now."""
        fits = self._fits(signature, rows)
        if self.slotted:
            slots = self.at(self.slots, rows)
            fits = np.minimum(fits, slots if signature.pack == 1 else slots * signature.pack)
        if signature.single or self.neighbours.repels_itself(signature.kind):
            fits = np.minimum(fits, 1)
        return self.kept.bound(signature, rows, fits) if self.kept.any else fits

    def lacks(self, signature: Signature) -> str | None:
        """What all willing targets lack for one such task; None when one takes it, or none is willing."""
        rows = self.willing(signature)
        if not len(rows):
            return None
        if self.hopeless(signature) and not self.kept.any:
            return words.CAPACITY
        able = self.able(signature, rows)
        if not able.any():
            return words.CAPACITY
        rows = rows[able]
        if self.slotted:
            rows = rows[self.slots[rows] > 0]
            if not len(rows):
                return words.FULL
        if not len(self._unlimited(signature, rows)):
            return words.LIMIT
        return None if len(self.unkept(signature, rows)) else words.RESERVED

    def unkept(self, signature: Signature, rows: Rows) -> Rows:
        """Those of the targets that no limit of a rule and no reservation closes."""
        if self.ruled:
            rows = self._unlimited(signature, rows)
        return rows[~self.kept.closed(signature, rows)] if self.kept.any else rows

    def _unlimited(self, signature: Signature, rows: Rows) -> Rows:
        if self.ruled:
            for mask in self._used_up(self.ruling(signature)):
                rows = rows[~mask[rows]]
        return rows

    def at(self, column: NDArray[Any], rows: Rows) -> NDArray[Any]:
        """Without a copy where all targets are meant."""
        return column if rows is self.floor.all_rows else column[rows]

    def able(self, signature: Signature, rows: Rows) -> Mask:
        """Which of the targets have enough free for one such task."""
        able: Mask | None = None
        for name, amount in signature.needs:
            free = self.free.get(name)
            if free is None:
                return np.zeros(len(rows), dtype=bool)
            enough = self.at(free, rows) >= amount - _EPSILON
            able = enough if able is None else able & enough
        return np.ones(len(rows), dtype=bool) if able is None else able

    def takes_one(self, signature: Signature, row: int) -> bool:
        """Whether this one target has room for one such task; what `able` and the slots say of all of them."""
        for name, amount in signature.needs:
            free = self.free.get(name)
            if free is None or free.item(row) < amount - _EPSILON:
                return False
        return bool(self.slots[row] > 0)

    def _fits(self, signature: Signature, rows: Rows) -> Counts:
        """How many such tasks go into what is free. A quantity that no target has fits nowhere."""
        most: Vector | None = None
        for name, amount in signature.needs:
            free = self.free.get(name)
            if free is None:
                return np.zeros(len(rows), dtype=np.int64)
            fits = (self.at(free, rows) + _EPSILON) / amount
            most = fits if most is None else np.minimum(most, fits)
        # Cutting off what is behind the point is a floor here: below nothing there is nothing either.
        return np.full(len(rows), _UNLIMITED) if most is None else most.astype(np.int64)

    def _together(self, signature: Signature) -> Mask:
        mask = np.zeros(len(self.floor.targets), dtype=bool)
        taken = (self.floor.row(name) for name in self._apart.get(signature.spread, ()))
        mask[[row for row in taken if row is not None]] = True
        return mask

    def _avoided(self, signature: Signature) -> Mask:
        """Targets that such a task left, as long as another that may have it takes work: else it has no choice.

        What could never hold the task, were it empty, is no other target: waiting for it would never end.
        """
        mask = self.floor.named(signature.detour.avoid)
        rows = self.floor.static(signature).rows
        ruling = self.ruling(signature)
        closed = (limit.mask for limit in ruling.limits if limit.most <= 0)
        for refused in (*ruling.forbidden.values(), *(~required for required in ruling.required.values()), *closed):
            rows = rows[~refused[rows]]
        instead = self._takes[rows] & ~mask[rows] & self.holds(signature)[rows]
        return mask if instead.any() else np.zeros_like(mask)

    def holds(self, signature: Signature) -> Mask:
        """Which targets are large enough for one such task, were they empty."""
        mask = np.ones(len(self.floor.targets), dtype=bool)
        for name, amount in signature.needs:
            mask &= self.capacity[name] + _EPSILON >= amount if name in self.capacity else False
        return mask

    def _reliability(self) -> Vector | None:
        memory, now = self.world.settings.failure_memory, self.world.now
        failed = [recent_failures(row, now, memory) for row in self.world.targets]
        return 1.0 / (1.0 + np.array(failed, dtype=np.float64)) if any(failed) else None

    def _idle(self) -> Vector:
        idle = np.ones(len(self.floor.targets))
        for name, capacity in self.capacity.items():
            np.minimum(idle, self.free[name] * self.inverse[name], out=idle, where=capacity > 0)
        return idle

    def allowance(self, signature: Signature) -> int:
        """How many such tasks may be placed at once, room apart: unique resources and limits of rules."""
        if signature.unique:
            return 0 if any(name in self.held for name in signature.unique) else 1
        if not self.ruled:
            return int(_UNLIMITED)
        left = [self._left(limit) for limit in self.ruling(signature).limits]
        # Those that are used up refuse targets, of which there may be others.
        return min((some for some in left if some > 0), default=int(_UNLIMITED))

    def _left(self, limit: Limit) -> int:
        return limit.most - self.limited.get(limit.name, 0)

    def _used_up(self, ruling: Ruling) -> Iterator[Mask]:
        return (limit.mask for limit in ruling.limits if self._left(limit) <= 0)

    def take_one(self, signature: Signature, row: int) -> None:
        idle = self.idle.item(row)
        for name, amount in signature.needs:
            free = self.free[name]
            left = free.item(row) - amount
            free[row] = left
            part = left * self.inverse[name].item(row)
            if part < idle:
                idle = part
        self.idle[row] = idle
        self.slots[row] -= 1
        self._note(signature, (row,), (1,))

    def take(self, signature: Signature, rows: Rows, counts: Counts | int) -> None:
        """So many of each target; one number where it is the same of all."""
        idle = self.idle[rows]
        for name, amount in signature.needs:
            left = self.free[name][rows] - amount * counts
            self.free[name][rows] = left
            np.minimum(idle, left * self.inverse[name][rows], out=idle)
        self.idle[rows] = idle
        self.slots[rows] -= counts if signature.pack == 1 else -(-counts // signature.pack)
        self._note(signature, rows, counts)

    def _note(self, signature: Signature, rows: Sequence[int] | Rows, counts: Sequence[int] | Counts | int) -> None:
        """What else a placement changes."""
        self._blunt = True
        self.neighbours.add(signature.kind, rows, counts)
        if self.kept.any or signature.unique or signature.spread or self.ruled:
            each = [counts] * len(rows) if isinstance(counts, int) else counts
            self.kept.take(signature, np.asarray(rows), np.asarray(each))
            self._bind(signature, rows, each)

    def promise(self, owner: str, signature: Signature, row: int) -> None:
        """A task gets its quantities there later; all else that it needs, nobody else may have meanwhile."""
        self.owners.take(owner, signature, 1)
        self._bind(signature, (row,), (1,))

    def _bind(self, signature: Signature, rows: Sequence[int] | Rows, counts: Sequence[int] | Counts) -> None:
        """What a task takes that is no quantity: unique resources, the target for its own order, limits of rules."""
        self.held.update(signature.unique)
        if signature.spread:
            apart = self._apart.setdefault(signature.spread, set())
            apart.update(self.floor.targets[row].name for row in rows)
        for limit in self.ruling(signature).limits if self.ruled else ():
            count = sum(int(count) for row, count in zip(rows, counts, strict=True) if limit.mask[row])
            self.limited[limit.name] = self.limited.get(limit.name, 0) + count

    def give_back(self, gone: NDArray[np.bool_]) -> None:
        """Takes away what runs, those of `ends` that are said, as if they were over."""
        ends, rows = self.ends, self.ends.rows[gone]
        for name, capacity in self.capacity.items():
            # A target that has nothing of a quantity gets nothing of it back, whatever runs there.
            np.add.at(self.free[name], rows, np.where(capacity[rows] > 0, ends.amounts(name)[gone], 0.0))
        if self.slotted:
            np.add.at(self.slots, rows, np.where(self.slots[rows] < _UNLIMITED // 2, 1, 0))
        kinds, codes = ends.kinds
        for code in np.unique(codes[gone]).tolist():
            of_kind = gone & (codes == code)
            self.neighbours.remove(kinds[code], ends.rows[of_kind], ends.tasks[of_kind])
        if self._apart:
            over = {ends.fulfilments[at].id for at in gone.nonzero()[0].tolist()}
            for order, targets in self.world.spread.items():
                self._apart[order] -= {target for target, ids in targets.items() if ids <= over}
        self.idle = self._idle()
        self.widen()


def _vector(amounts: Iterator[Number]) -> Vector:
    return np.fromiter(amounts, dtype=np.float64)


def _inverse(capacity: Vector) -> Vector:
    """1 / capacity; 0 where there is nothing of it."""
    return np.divide(1.0, capacity, out=np.zeros(len(capacity)), where=capacity > 0)


def _limits(world: World) -> Vector | None:
    """The time limits that targets give to tasks without one; None when none does."""
    limits = [row.default_time_limit for row in world.targets]
    if all(limit is None for limit in limits):
        return None
    return _vector(np.inf if limit is None else float(limit) for limit in limits)
