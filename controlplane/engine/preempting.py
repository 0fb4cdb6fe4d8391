"""Preemption: room for an order that may displace others, by stopping lower, preemptible work.

The room is looked for in a trial: the room of the cycle as it will be when everything that is stopping is gone, with
every task laid for which room was made already. On each target whose refusal the end of other work would change: the
victims of the lowest priority, as few as will do, the youngest of equals. Of all targets the one whose victims have
the lowest priorities, then the fewest, then the youngest. `decide` checks in the end that the orders really get the
room, and stops nobody for an order that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from controlplane.cache.target_ledger import kind_of
from controlplane.engine import reserving
from controlplane.engine.gangs import Parts
from controlplane.engine.kept import UNLIMITED, Beneficiary
from controlplane.engine.laying import place
from controlplane.engine.neighbours import kinds_repel
from controlplane.engine.room import Room
from controlplane.engine.service import Queue
from controlplane.engine.signature import Signature
from controlplane.model.failure import PREEMPTED
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.quantity import Number

_EPSILON = 1e-9
_MOST_TARGETS = 64
_MOST_TASKS = 100
_SLOTS = "fulfilments"
REASON = PREEMPTED


@dataclass(frozen=True, slots=True)
class Eviction:
    """A fulfilment to stop; `by` is the order that needs its room."""

    fulfilment: str
    order: str
    target: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class _Choice:
    row: int
    victims: tuple[Fulfilment, ...]


@dataclass(slots=True)
class Displacing:
    """What a cycle does to make room: whom it stops, and for how many tasks of each order there is room then."""

    evictions: list[Eviction] = field(default_factory=list)
    stopped: set[str] = field(default_factory=set)
    promised: dict[str, int] = field(default_factory=dict)
    _laid: list[tuple[Signature, int]] = field(default_factory=list)

    def make_room(self, room: Room, queue: Queue, orders: Iterator[str], most: int) -> bool:
        """Makes room for tasks of one signature, up to so many, each of the next of the orders; whether for any."""
        signature, trial = queue.signature, self._trial(room)
        done = 0
        for order in orders:
            if done >= min(most, _MOST_TASKS):
                break
            choice = self._choose(trial, signature, queue.priority)
            if choice is None:
                break
            self._try(trial, signature, choice)
            self._record(room, trial, queue.owner, [(signature, choice, order)])
            done += 1
        return done > 0

    def make_room_for_gang(self, room: Room, queue: Queue, parts: Parts) -> bool:
        """Makes room for all of a gang, or for nothing of it."""
        if sum(group.count for _, group in parts) > _MOST_TASKS:
            return False
        trial, stopped = self._trial(room), set(self.stopped)
        chosen: list[tuple[Signature, _Choice, str]] = []
        for signature, group in parts:
            for _ in range(group.count):
                laid = place(trial, signature, 1)
                choice = _Choice(laid.rows[0], ()) if laid.total else self._choose(trial, signature, queue.priority)
                if choice is None:
                    self.stopped = stopped
                    return False
                if not laid.total:
                    self._try(trial, signature, choice)
                chosen.append((signature, choice, group.order))
        self._record(room, trial, queue.owner, chosen)
        return True

    def _trial(self, room: Room) -> Room:
        """The room when all that is stopping is gone, with what it is promised to."""
        ends = room.ends
        trial = room.trial()
        trial.give_back(ends.stopping | ends.those(self.stopped))
        for signature, row in self._laid:
            trial.take_one(signature, row)
        # The limits of rules count what is promised already.
        trial.limited = dict(room.limited)
        return trial

    def _try(self, trial: Room, signature: Signature, choice: _Choice) -> None:
        ids = {victim.id for victim in choice.victims}
        if ids:
            trial.give_back(trial.ends.those(ids))
            self.stopped |= ids
        trial.take_one(signature, choice.row)

    def _record(self, room: Room, trial: Room, owner: str, chosen: list[tuple[Signature, _Choice, str]]) -> None:
        for signature, choice, order in chosen:
            self._laid.append((signature, choice.row))
            self.promised[order] = self.promised.get(order, 0) + 1
            self.evictions.extend(Eviction(one.id, one.order, one.target, order) for one in choice.victims)
            spare = {name: float(trial.free[name][choice.row]) for name, _ in signature.needs}
            slots = int(trial.slots[choice.row]) if room.slotted else UNLIMITED
            room.kept.keep(choice.row, 0.0, spare, slots, [Beneficiary(order, signature)])
            room.promise(owner, signature, choice.row)
        room.shrunk()

    def _choose(self, trial: Room, signature: Signature, priority: int) -> _Choice | None:
        """Where to stop whom for one such task, perhaps nobody any more; None when that would not help."""
        if trial.allowance(signature) <= 0:
            return None
        rows = np.flatnonzero(reserving.relievable(trial, signature) & ~self._kept_for_others(trial))
        nearest = rows[np.argsort(reserving.missing(trial, signature)[rows], kind="stable")][:_MOST_TARGETS]
        found: list[tuple[tuple[int, ...], tuple[int, ...], int, tuple[Fulfilment, ...]]] = []
        for row in nearest.tolist():
            victims = self._victims(trial, signature, priority, row)
            if victims is not None:
                priorities = sorted((_priority(trial, one) for one in victims), reverse=True)
                ages = sorted(-_moment(one) for one in victims)
                found.append((tuple(priorities), tuple(ages), row, tuple(victims)))
        if not found:
            return None
        _, _, best, chosen = min(found, key=lambda choice: choice[:3])
        return _Choice(best, chosen)

    def _kept_for_others(self, trial: Room) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Targets that are kept for who went before, but for those where this cycle makes room anyway."""
        kept = trial.kept.until >= 0
        kept[[row for _, row in self._laid]] = False
        return np.asarray(kept)

    def _victims(self, trial: Room, signature: Signature, priority: int, row: int) -> list[Fulfilment] | None:
        """Whom to stop there so that it fits; None when all that may be stopped are not enough."""
        # In an order that does not depend on how the map of fulfilments is laid out in this process.
        live = sorted(trial.world.targets[row].live.values(), key=lambda one: one.id)
        able = [one for one in live if one.id not in self.stopped and _may_be_stopped(trial, one, priority)]
        if _repelled_anyway(trial, signature, row, able):
            return None
        against = [one for one in able if kinds_repel(signature.kind, kind_of(one.traits))]
        rest = [one for one in able if one not in against]
        short = _less(_short(trial, signature, row), against)
        if _less(short, rest):
            return None
        return [*against, *_needed(rest, short, lambda one: _priority(trial, one))]


def _repelled_anyway(trial: Room, signature: Signature, row: int, able: Iterable[Fulfilment]) -> bool:
    """Whether somebody stays on the target whom such a task cannot be beside."""
    if trial.neighbours.matter_to(signature):
        staying: dict[object, int] = {}
        for one in able:
            kind = kind_of(one.traits)
            staying[kind] = staying.get(kind, 0) - len(one.tasks)
        for kind, counts in trial.neighbours.present.items():
            if counts.item(row) + staying.get(kind, 0) > 0 and kinds_repel(signature.kind, kind):
                return True
    return bool(signature.spread) and trial.floor.targets[row].name in trial.apart(signature.spread)


def _may_be_stopped(trial: Room, one: Fulfilment, priority: int) -> bool:
    preemptible = one.want == "run" and one.traits is not None and one.traits.preemptible
    return preemptible and _priority(trial, one) < priority


def _priority(trial: Room, one: Fulfilment) -> int:
    """Above all when nobody knows the order."""
    return trial.world.priorities.get(one.order, 101)


def _needed(
    able: Iterable[Fulfilment], short: Mapping[str, Number], priority: Callable[[Fulfilment], int]
) -> list[Fulfilment]:
    """Of those that are enough together the ones to stop: each is spared without whom the others are still enough,
    first those of the highest priority, then those that help least, then the oldest."""
    chosen = list(able)
    order = sorted(chosen, key=lambda one: (-priority(one), _helps(one, short), _moment(one), one.id))
    for one in order:
        others = [other for other in chosen if other is not one]
        if not _less(short, others):
            chosen = others
    return chosen


def _short(trial: Room, signature: Signature, row: int) -> dict[str, Number]:
    """What is missing there for one such task."""
    short: dict[str, Number] = {}
    for name, amount in signature.needs:
        free = float(trial.free[name][row])
        if amount > free + _EPSILON:
            short[name] = amount - free
    if trial.slots[row] <= 0:
        short[_SLOTS] = 1 - int(trial.slots[row])
    return short


def _helps(one: Fulfilment, short: Mapping[str, Number]) -> float:
    """Of what is missing the part that it would free, of all quantities the smallest."""
    given = {_SLOTS: 1, **one.requests}
    return min((min(1.0, given.get(name, 0) / amount) for name, amount in short.items()), default=1.0)


def _less(short: Mapping[str, Number], ended: Iterable[Fulfilment]) -> dict[str, Number]:
    """What is still missing when these are over."""
    left = dict(short)
    for one in ended:
        for name in left:
            left[name] -= 1 if name == _SLOTS else one.requests.get(name, 0)
    return {name: amount for name, amount in left.items() if amount > _EPSILON}


def _moment(one: Fulfilment) -> int:
    """Sorts by age without reading times: they are written so that later ones sort after earlier ones."""
    return int("".join(letter for letter in one.created if letter.isdigit()) or 0)
