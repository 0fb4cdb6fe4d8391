"""Preemption: room for an order that may displace others, by stopping lower, preemptible work.

On each target that refuses for want of room alone: the fewest that would free enough, the youngest of equals first.
Of all targets the one with the fewest, then the youngest. What is stopping already counts as free soon, so that nobody
is stopped twice for the same task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from controlplane.engine import reserving
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.quantity import Number

_EPSILON = 1e-9
_MOST_TARGETS = 64
REASON = "Preempted"


@dataclass(frozen=True, slots=True)
class Eviction:
    fulfilment: str
    order: str
    target: str


@dataclass(slots=True)
class Soon:
    """What this cycle promised already: who is to stop, and how much of what becomes free is spoken for."""

    stopped: set[str] = field(default_factory=set)
    promised: dict[int, dict[str, Number]] = field(default_factory=dict)


def make_room(room: Room, signature: Signature, priority: int, soon: Soon) -> list[Eviction] | None:
    """Whom to stop for one such task, perhaps nobody any more; None when that would not help."""
    rows = np.flatnonzero(reserving.candidates(room, signature, soon.promised))
    nearest = rows[np.argsort(reserving.missing(room, signature)[rows], kind="stable")][:_MOST_TARGETS]
    found: list[tuple[int, tuple[int, ...], int, list[Fulfilment]]] = []
    for row in nearest.tolist():
        victims = _victims(room, signature, priority, row, soon)
        if victims is not None:
            age = tuple(-_moment(victim) for victim in victims)
            found.append((len(victims), age, row, victims))
    if not found:
        return None
    _, _, row, victims = min(found, key=lambda choice: choice[:3])
    promised = soon.promised.setdefault(row, {})
    for name, amount in signature.needs:
        promised[name] = promised.get(name, 0) + amount
    soon.stopped.update(victim.id for victim in victims)
    room.reserve(row, math.inf)
    return [Eviction(victim.id, victim.order, victim.target) for victim in victims]


def _victims(room: Room, signature: Signature, priority: int, row: int, soon: Soon) -> list[Fulfilment] | None:
    """The fewest to stop there so that it fits; None when all of them are not enough."""
    live = room.world.targets[row].live
    missing = short = _short(room, signature, row, soon)
    if not short:
        return []
    able = [
        one
        for one in live.values()
        if one.want == "run" and one.traits is not None and one.traits.preemptible
        and one.id not in soon.stopped and room.world.priorities.get(one.order, 101) < priority
    ]  # fmt: skip
    chosen: list[Fulfilment] = []
    for one in sorted(able, key=lambda one: (-_helps(one, short), -_moment(one), one.id)):
        chosen.append(one)
        short = _less(short, one)
        if not short:
            return _needed(chosen, missing)
    return None


def _needed(chosen: list[Fulfilment], missing: Mapping[str, Number]) -> list[Fulfilment]:
    """Those without whom it would not be enough: of several quantities, what one frees may be freed by others too."""
    for one in sorted(chosen, key=lambda one: (_helps(one, missing), _moment(one), one.id)):
        rest = [other for other in chosen if other is not one]
        short: Mapping[str, Number] = missing
        for other in rest:
            short = _less(short, other)
        chosen = chosen if short else rest
    return chosen


def _short(room: Room, signature: Signature, row: int, soon: Soon) -> dict[str, Number]:
    """What is missing there once all that is stopping is gone."""
    free: dict[str, float] = {name: float(room.free[name][row]) for name, _ in signature.needs}
    slots = int(room.slots[row])
    for _, one in sorted(room.world.targets[row].live.items()):
        if one.want == "stop" or one.id in soon.stopped:
            slots += 1
            for name in free:
                free[name] += one.requests.get(name, 0)
    for name, amount in soon.promised.get(row, {}).items():
        free[name] = free.get(name, 0) - amount
    short: dict[str, Number] = {
        name: amount - free[name] for name, amount in signature.needs if amount > free[name] + _EPSILON
    }
    if slots <= 0:
        short["fulfilments"] = 1 - slots
    return short


def _helps(one: Fulfilment, short: Mapping[str, Number]) -> float:
    """Of what is missing the part that it would free, of all quantities the smallest."""
    given = {"fulfilments": 1, **one.requests}
    return min(min(1.0, given.get(name, 0) / amount) for name, amount in short.items())


def _less(short: Mapping[str, Number], one: Fulfilment) -> dict[str, Number]:
    given = {"fulfilments": 1, **one.requests}
    left = {name: amount - given.get(name, 0) for name, amount in short.items()}
    return {name: amount for name, amount in left.items() if amount > _EPSILON}


def _moment(one: Fulfilment) -> int:
    """Sorts by age without reading times: they are written so that later ones sort after earlier ones."""
    return int("".join(letter for letter in one.created if letter.isdigit()) or 0)
