"""Room: the capacity left on every target in this cycle.

Room only ever shrinks within a cycle. `filtering` decides which targets take a task, `laying` decides where the tasks
go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from controlplane.engine.arrays import Counts, Mask, Rows, Vector
from controlplane.engine.ends import Ends
from controlplane.engine.kept import UNLIMITED, KeptRoom
from controlplane.engine.neighbours import Neighbours
from controlplane.engine.owners import Owners
from controlplane.engine.rules.ruling import Limit, Ruling
from controlplane.engine.signature import Signature
from controlplane.engine.world import World, is_open, recent_failures
from controlplane.model.quantity import EPSILON, Number

_UNLIMITED = np.int64(UNLIMITED)


class Room:
    def __init__(self, world: World) -> None:
        self.world = world
        self.floor = world.floor
        targets = world.targets
        names = sorted({name for row in targets for name in row.capacity})
        self.capacity = {name: _vector(row.capacity.get(name, 0) for row in targets) for name in names}
        self.inverse = {name: _inverse(capacity) for name, capacity in self.capacity.items()}
        # For each quantity, the part which one unit is of the largest target.
        self.least_inverse = {
            name: 1.0 / max(float(most.max(initial=0.0)), 1.0) for name, most in self.capacity.items()
        }
        # How many quantities each target has a capacity of.
        self.quantities = np.maximum(sum((most > 0 for most in self.capacity.values()), np.zeros(len(targets))), 1.0)
        self.free = {name: _vector(row.free.get(name, 0) for row in targets) for name in names}
        slots = (_UNLIMITED if row.slots is None else row.slots for row in targets)
        self.slots = np.fromiter(slots, dtype=np.int64, count=len(targets))
        self.ready = np.fromiter((row.ready for row in targets), dtype=bool, count=len(targets))
        self.opened = np.fromiter((is_open(row, world.now) for row in targets), dtype=bool, count=len(targets))
        self.takes: Mask = self.ready & self.opened
        self.all_take = bool(self.takes.all())
        self.slotted = any(row.slots is not None for row in targets)
        self.ruled = bool(world.book.rules)
        # Whether targets may refuse tasks which only ask for room, neighbours apart: some targets take no work, or
        # there are rules. The answers of `present_in` of all filters in a single flag.
        self.asks = not self.all_take or self.ruled
        # The smallest free part over all quantities of a target, 0 to 1.
        self.idle = self._idle()
        self.reliability = self._reliability()
        # Settings which are read for every task: how much room counts, and whether to pack.
        self.weight = float(world.settings.weights.room)
        self.packs = world.settings.placement == "pack"
        # Whether only room and the signature itself make some targets better than others.
        self.plain = self.reliability is None and not self.ruled
        self.neighbours = Neighbours(targets)
        self.owners = Owners(world)
        self.held = set(world.held)
        self.limited = dict(world.limited)
        # The largest free amount of each quantity on any target, once for tasks which may be late on kept targets and
        # once for tasks with a time limit. Room only shrinks, so an older value stays a valid upper bound, only less
        # sharp.
        self._ceiling: dict[str, float] = {}
        self._ceiling_in_time: dict[str, float] = {}
        self._blunt = True
        self.kept = KeptRoom(len(targets), _limits(world))
        self._limited_by_targets = any(row.default_time_limit is not None for row in targets)
        self._apart = {order: set(names) for order, names in world.spread.items()}
        self.sharpen()

    @cached_property
    def ends(self) -> Ends:
        """When the running work is over. A trial copy shares the ends: a trial never changes running work."""
        return Ends([row.ends for row in self.world.targets], self.world.now)

    def keep_apart(self, order: str, targets: Iterable[str]) -> None:
        """Sets the targets with tasks of an order whose tasks keep apart, for an order unknown to the world."""
        self._apart[order] = set(targets)

    def trial(self) -> Self:
        """A copy of the room for trying placements out."""
        other = copy.copy(self)
        other.free = {name: amounts.copy() for name, amounts in self.free.items()}
        other.slots, other.idle, other.kept = self.slots.copy(), self.idle.copy(), self.kept.copy()
        other.neighbours = self.neighbours.copy()
        other.owners = self.owners.copy()
        other.held, other.limited = set(self.held), dict(self.limited)
        other._apart = {order: set(names) for order, names in self._apart.items()}
        return other

    def apart(self, order: str) -> frozenset[str]:
        """The targets with tasks of the order, if the order keeps tasks apart."""
        return frozenset(self._apart.get(order, ()))

    def ruling(self, signature: Signature) -> Ruling:
        book = self.world.book
        return book.rule(signature.facts, self.floor.targets, self.world.now)

    def hopeless(self, signature: Signature) -> bool:
        """Whether no target can have enough free for one such task, by the largest free amounts alone."""
        in_time = signature.time_limit is not None or self._limited_by_targets
        ceiling = self._ceiling_in_time if in_time else self._ceiling
        for name, amount in signature.needs:  # noqa: SIM110 - asked for every group
            if amount - EPSILON > ceiling.get(name, 0.0):
                return True
        return False

    def sharpen(self) -> None:
        """Recomputes the largest free amounts. Called when a task did not fit, since the next tasks are likely not to
        fit either."""
        if not self._blunt or not len(self.slots):
            return
        self._blunt = False
        takes, kept = self.takes, self.kept
        self._ceiling_in_time = {name: float(free.max(where=takes, initial=0.0)) for name, free in self.free.items()}
        self._ceiling = self._ceiling_in_time
        if kept.any:
            open_ = takes & (kept.until < 0)
            self._ceiling = {
                name: max(float(free.max(where=open_, initial=0.0)), kept.most_to_spare(name, free, takes))
                for name, free in self.free.items()
            }

    def shrunk(self) -> None:
        """Called when room has shrunk."""
        self._blunt = True

    def widen(self) -> None:
        """Called when room has grown."""
        self._blunt = True
        self.sharpen()

    def fits(self, signature: Signature, rows: Rows) -> Counts:
        """How many such tasks each of these open targets takes now."""
        fits = self._fits(signature, rows)
        if self.slotted:
            fits = np.minimum(fits, self.at(self.slots, rows) * signature.pack)
        if signature.single or self.neighbours.repels_itself(signature.kind):
            fits = np.minimum(fits, 1)
        return self.kept.bound(signature, rows, fits) if self.kept.any else fits

    def bounds(self, signature: Signature) -> bool:
        """Whether a bound beside the free amounts can limit how many such tasks a target takes."""
        return self.slotted or self.kept.any or signature.single or self.neighbours.repels_itself(signature.kind)

    def at(self, column: NDArray[Any], rows: Rows) -> NDArray[Any]:
        """The column at these rows; the column itself, without a copy, when the rows are all rows."""
        return column if rows is self.floor.all_rows else column[rows]

    def able(self, signature: Signature, rows: Rows) -> Mask:
        """Which of the targets have enough free for one such task."""
        able: Mask | None = None
        for name, amount in signature.needs:
            free = self.free.get(name)
            if free is None:
                return np.zeros(len(rows), dtype=bool)
            enough = self.at(free, rows) >= amount - EPSILON
            able = enough if able is None else able & enough
        return np.ones(len(rows), dtype=bool) if able is None else able

    def takes_one(self, signature: Signature, row: int) -> bool:
        """Whether this target has room for one such task: the check of `able` and of the slots, for a single row."""
        for name, amount in signature.needs:
            free = self.free.get(name)
            if free is None or free.item(row) < amount - EPSILON:
                return False
        return not self.slotted or bool(self.slots[row] > 0)

    def _fits(self, signature: Signature, rows: Rows) -> Counts:
        """How many such tasks go into the free amounts. A task requesting an unknown quantity fits on no target."""
        most: Vector | None = None
        for name, amount in signature.needs:
            free = self.free.get(name)
            if free is None:
                return np.zeros(len(rows), dtype=np.int64)
            fits = (self.at(free, rows) + EPSILON) / amount
            most = fits if most is None else np.minimum(most, fits)
        # astype truncates toward zero; negative values mean "none fit" either way.
        return np.full(len(rows), _UNLIMITED) if most is None else most.astype(np.int64)

    def holds(self, signature: Signature) -> Mask:
        """Which targets would be large enough for one such task if empty."""
        mask = np.ones(len(self.floor.targets), dtype=bool)
        for name, amount in signature.needs:
            mask &= self.capacity[name] + EPSILON >= amount if name in self.capacity else False
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
            return UNLIMITED
        left = [self.left_of(limit) for limit in self.ruling(signature).limits]
        # Exhausted limits exclude only the targets of the limit (`RuleLimits`); they do not cap the count elsewhere.
        return min((some for some in left if some > 0), default=UNLIMITED)

    def left_of(self, limit: Limit) -> int:
        """How many more tasks the rule allows."""
        return limit.most - self.limited.get(limit.name, 0)

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
        if self.slotted:
            self.slots[row] -= 1
        self._note(signature, (row,), (1,))

    def take(self, signature: Signature, rows: Rows, counts: Counts | int) -> None:
        """Takes room for `counts` tasks on each target; a plain number means the same count on all targets."""
        idle = self.idle[rows]
        for name, amount in signature.needs:
            left = self.free[name][rows] - amount * counts
            self.free[name][rows] = left
            np.minimum(idle, left * self.inverse[name][rows], out=idle)
        self.idle[rows] = idle
        if self.slotted:
            self.slots[rows] -= counts if signature.pack == 1 else -(-counts // signature.pack)
        self._note(signature, rows, counts)

    def _note(self, signature: Signature, rows: Sequence[int] | Rows, counts: Sequence[int] | Counts | int) -> None:
        """Updates the rest of the room after a placement: neighbours, kept room, unique resources, limits of rules."""
        self._blunt = True
        self.neighbours.add(signature.kind, rows, counts)
        if self.kept.any or signature.unique or signature.spread or self.ruled:
            each = [counts] * len(rows) if isinstance(counts, int) else counts
            self.kept.take(signature, np.asarray(rows), np.asarray(each))
            self._bind(signature, rows, each)

    def promise(self, owner: str, signature: Signature, row: int) -> None:
        """Reserves quota, unique resources and limits of rules for a task which gets the quantities on the target
        later, so that no other task takes them meanwhile."""
        self.owners.take(owner, signature, 1)
        self._bind(signature, (row,), (1,))

    def _bind(self, signature: Signature, rows: Sequence[int] | Rows, counts: Sequence[int] | Counts) -> None:
        """Takes the resources of a task which are not quantities: unique resources, the target for an order whose tasks
        keep apart, limits of rules."""
        self.held.update(signature.unique)
        if signature.spread:
            apart = self._apart.setdefault(signature.spread, set())
            apart.update(self.floor.targets[row].name for row in rows)
        for limit in self.ruling(signature).limits if self.ruled else ():
            count = sum(int(count) for row, count in zip(rows, counts, strict=True) if limit.mask[row])
            self.limited[limit.name] = self.limited.get(limit.name, 0) + count

    def give_back(self, gone: NDArray[np.bool_]) -> None:
        """Frees the room of the marked fulfilments of `ends`, as if these fulfilments were over."""
        ends, rows = self.ends, self.ends.rows[gone]
        for name, capacity in self.capacity.items():
            # A target without capacity of a quantity gets no amount of the quantity back, whatever runs there.
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
    """1 / capacity; 0 where the capacity is 0."""
    return np.divide(1.0, capacity, out=np.zeros(len(capacity)), where=capacity > 0)


def _limits(world: World) -> Vector | None:
    """The time limits which targets give to tasks without a limit; None when no target gives a limit."""
    limits = [row.default_time_limit for row in world.targets]
    if all(limit is None for limit in limits):
        return None
    return _vector(np.inf if limit is None else float(limit) for limit in limits)
