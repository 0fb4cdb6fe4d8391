"""Preemption: room for an order which may displace other work, by stopping preemptible work of lower priority.

The room is searched in a trial: the room of the cycle once all stopping work is gone, with every task laid for which
room was made already. Only targets count whose refusal would change with the end of other work. On each such target
the victims are fulfilments of the lowest priority, as few as are enough, the youngest of equals. Of all targets, the
target is chosen whose victims have the lowest priorities, then the fewest victims, then the youngest. `decide` checks
in the end whether the orders really get the room, and stops no work for an order which does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from controlplane.cache.target_ledger import neighbour_kind
from controlplane.engine import filtering, reserving
from controlplane.engine.gangs import Parts
from controlplane.engine.kept import UNLIMITED, Beneficiary
from controlplane.engine.laying import place
from controlplane.engine.neighbours import kinds_repel
from controlplane.engine.room import Room
from controlplane.engine.service import Group, Queue
from controlplane.engine.signature import Signature
from controlplane.engine.waiting import OrderJob
from controlplane.model.failure import PREEMPTED
from controlplane.model.fulfilment import Fulfilment, Preemption
from controlplane.model.quantity import EPSILON, Number

_MOST_TARGETS = 64
_MOST_TASKS = 100
_SLOTS = "fulfilments"
REASON = PREEMPTED


@dataclass(frozen=True, slots=True)
class Eviction:
    """A fulfilment to stop for a task of the order `by`; `job` is the job of the task. Evictions with the same `room`
    make room for the same task together."""

    fulfilment: str
    order: str
    target: str
    by: str = ""
    job: str = ""
    room: str = ""

    def on_record(self, *, epoch: int, cycle: int) -> Preemption:
        return Preemption(
            fulfilment=self.fulfilment,
            order=self.order,
            target=self.target,
            by=self.by,
            job=self.job,
            room=self.room,
            epoch=epoch,
            cycle=cycle,
        )


@dataclass(frozen=True, slots=True)
class _Choice:
    row: int
    victims: tuple[Fulfilment, ...]


# Signature, place, order and job of a task for which room is made.
_Promise = tuple[Signature, _Choice, str, str]


@dataclass(slots=True)
class Displacing:
    """The room made by a cycle: the fulfilments to stop, and for how many tasks of each order there is room then."""

    evictions: list[Eviction] = field(default_factory=list)
    stopped: set[str] = field(default_factory=set)
    promised: dict[str, int] = field(default_factory=dict)
    # How many tasks of each job wait for the end of work stopped for them in an earlier cycle.
    held: Counter[OrderJob] = field(default_factory=Counter)
    _laid: list[tuple[Signature, int]] = field(default_factory=list)

    def hold(self, room: Room, owner: str, signature: Signature, task: OrderJob, row: int) -> bool:
        """Keeps room on the target which was made for such a task and is not free yet; whether the task fits there once
        all stopping work has ended."""
        trial = self._trial(room)
        if not takes_there(trial, owner, signature, row):
            return False
        choice = _Choice(row, ())
        self._try(trial, signature, choice)
        self._record(room, trial, owner, [(signature, choice, *task)])
        self.held[task] += 1
        return True

    def make_room(self, room: Room, queue: Queue, tasks: Iterator[Group], most: int) -> bool:
        """Makes room for up to `most` tasks of the signature of the queue, each task of the next group in `tasks`;
        whether room was made for any task."""
        signature, trial = queue.signature, self._trial(room)
        done = 0
        for group in tasks:
            if done >= min(most, _MOST_TASKS):
                break
            choice = self._choose(trial, signature, queue.priority)
            if choice is None:
                break
            self._try(trial, signature, choice)
            self._record(room, trial, queue.owner, [(signature, choice, group.order, group.job)])
            done += 1
        return done > 0

    def make_room_for_gang(self, room: Room, queue: Queue, parts: Parts) -> bool:
        """Makes room for all tasks of a gang, or for none of them."""
        if sum(group.count for _, group in parts) > _MOST_TASKS:
            return False
        trial, stopped = self._trial(room), set(self.stopped)
        chosen: list[_Promise] = []
        for signature, group in parts:
            for _ in range(group.count):
                laid = place(trial, signature, 1)
                choice = _Choice(laid.rows[0], ()) if laid.total else self._choose(trial, signature, queue.priority)
                if choice is None:
                    self.stopped = stopped
                    return False
                if not laid.total:
                    self._try(trial, signature, choice)
                chosen.append((signature, choice, group.order, group.job))
        self._record(room, trial, queue.owner, chosen)
        return True

    def _trial(self, room: Room) -> Room:
        """The room once all stopping work is gone, with the tasks laid to which room is promised."""
        ends = room.ends
        trial = room.trial()
        trial.give_back(ends.stopping | ends.those(self.stopped))
        for signature, row in self._laid:
            trial.take_one(signature, row)
        # The limits of rules count promised tasks already.
        trial.limited = dict(room.limited)
        return trial

    def _try(self, trial: Room, signature: Signature, choice: _Choice) -> None:
        ids = {victim.id for victim in choice.victims}
        if ids:
            trial.give_back(trial.ends.those(ids))
            self.stopped |= ids
        trial.take_one(signature, choice.row)

    def _record(self, room: Room, trial: Room, owner: str, chosen: list[_Promise]) -> None:
        for signature, choice, order, job in chosen:
            self._laid.append((signature, choice.row))
            self.promised[order] = self.promised.get(order, 0) + 1
            first = min((victim.id for victim in choice.victims), default="")
            self.evictions.extend(
                Eviction(victim.id, victim.order, victim.target, order, job, first) for victim in choice.victims
            )
            spare = {name: float(trial.free[name][choice.row]) for name, _ in signature.needs}
            slots = int(trial.slots[choice.row]) if room.slotted else UNLIMITED
            room.kept.keep(choice.row, 0.0, spare, slots, [Beneficiary(order, signature)])
            room.promise(owner, signature, choice.row)
        room.shrunk()

    def _choose(self, trial: Room, signature: Signature, priority: int) -> _Choice | None:
        """The target and the victims to stop there for such a task, perhaps no victims; None when no stop would
        help."""
        if trial.allowance(signature) <= 0:
            return None
        rows = np.flatnonzero(reserving.relievable(trial, signature) & ~self._kept_for_others(trial))
        nearest = rows[np.argsort(reserving.missing(trial, signature)[rows], kind="stable")][:_MOST_TARGETS]
        choices: list[tuple[tuple[int, ...], tuple[int, ...], int, tuple[Fulfilment, ...]]] = []
        for row in nearest.tolist():
            victims = self._victims(trial, signature, priority, row)
            if victims is not None:
                priorities = sorted((_priority(trial, victim) for victim in victims), reverse=True)
                ages = sorted(-_moment(victim) for victim in victims)
                choices.append((tuple(priorities), tuple(ages), row, tuple(victims)))
        if not choices:
            return None
        _, _, best, chosen = min(choices, key=lambda choice: choice[:3])
        return _Choice(best, chosen)

    def _kept_for_others(self, trial: Room) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Targets kept for work served earlier, except targets where this cycle makes room anyway."""
        kept = trial.kept.until >= 0
        kept[[row for _, row in self._laid]] = False
        return np.asarray(kept)

    def _victims(self, trial: Room, signature: Signature, priority: int, row: int) -> list[Fulfilment] | None:
        """The fulfilments to stop on the target so that such a task fits; None when stopping all work which may be
        stopped is not enough."""
        # Sorted, since the iteration order of the map of fulfilments may differ between processes.
        live = sorted(trial.world.targets[row].live.values(), key=lambda fulfilment: fulfilment.id)
        able = [
            fulfilment
            for fulfilment in live
            if fulfilment.id not in self.stopped and _may_be_stopped(trial, fulfilment, priority)
        ]
        if _repelled_anyway(trial, signature, row, able):
            return None
        against = [fulfilment for fulfilment in able if kinds_repel(signature.kind, neighbour_kind(fulfilment.traits))]
        rest = [fulfilment for fulfilment in able if fulfilment not in against]
        short = _less(_short(trial, signature, row), against)
        if _less(short, rest):
            return None
        return [*against, *_needed(rest, short, lambda fulfilment: _priority(trial, fulfilment))]


def takes_there(room: Room, owner: str, signature: Signature, row: int) -> bool:
    """Whether this target takes such a task of the owner now, quota and limits included."""
    allowed = min(room.allowance(signature), room.owners.allowance(owner, signature))
    return allowed > 0 and row in filtering.open_rows(room, signature)


def _repelled_anyway(trial: Room, signature: Signature, row: int, able: Iterable[Fulfilment]) -> bool:
    """Whether work stays on the target which such a task cannot run beside."""
    if trial.neighbours.matter_to(signature):
        staying: dict[object, int] = {}
        for fulfilment in able:
            kind = neighbour_kind(fulfilment.traits)
            staying[kind] = staying.get(kind, 0) - len(fulfilment.tasks)
        for kind, counts in trial.neighbours.present.items():
            if counts.item(row) + staying.get(kind, 0) > 0 and kinds_repel(signature.kind, kind):
                return True
    return bool(signature.spread) and trial.floor.targets[row].name in trial.apart(signature.spread)


def _may_be_stopped(trial: Room, fulfilment: Fulfilment, priority: int) -> bool:
    preemptible = fulfilment.want == "run" and fulfilment.traits is not None and fulfilment.traits.preemptible
    return preemptible and _priority(trial, fulfilment) < priority


def _priority(trial: Room, fulfilment: Fulfilment) -> int:
    """The priority of the order of the fulfilment; above every priority when the order is unknown."""
    return trial.world.priorities.get(fulfilment.order, 101)


def _needed(
    able: Iterable[Fulfilment], short: Mapping[str, Number], priority: Callable[[Fulfilment], int]
) -> list[Fulfilment]:
    """The fulfilments to stop, of `able`, which are enough together. A fulfilment is spared when the others are enough
    without it: first fulfilments of the highest priority, then the least helpful, then the oldest."""
    chosen = list(able)
    order = sorted(
        chosen,
        key=lambda fulfilment: (-priority(fulfilment), _helps(fulfilment, short), _moment(fulfilment), fulfilment.id),
    )
    for fulfilment in order:
        others = [other for other in chosen if other is not fulfilment]
        if not _less(short, others):
            chosen = others
    return chosen


def _short(trial: Room, signature: Signature, row: int) -> dict[str, Number]:
    """The amounts missing on the target for such a task, slots included."""
    short: dict[str, Number] = {}
    for name, amount in signature.needs:
        free = float(trial.free[name][row])
        if amount > free + EPSILON:
            short[name] = amount - free
    if trial.slots[row] <= 0:
        short[_SLOTS] = 1 - int(trial.slots[row])
    return short


def _helps(fulfilment: Fulfilment, short: Mapping[str, Number]) -> float:
    """The part of the missing amounts freed by the end of the fulfilment; the smallest part over all quantities."""
    given = {_SLOTS: 1, **fulfilment.requests}
    return min((min(1.0, given.get(name, 0) / amount) for name, amount in short.items()), default=1.0)


def _less(short: Mapping[str, Number], ended: Iterable[Fulfilment]) -> dict[str, Number]:
    """The amounts still missing when these fulfilments are over."""
    left = dict(short)
    for fulfilment in ended:
        for name in left:
            left[name] -= 1 if name == _SLOTS else fulfilment.requests.get(name, 0)
    return {name: amount for name, amount in left.items() if amount > EPSILON}


def _moment(fulfilment: Fulfilment) -> int:
    """A number for sorting by age without parsing times: the digits of later times sort after earlier times."""
    return int("".join(letter for letter in fulfilment.created if letter.isdigit()) or 0)
