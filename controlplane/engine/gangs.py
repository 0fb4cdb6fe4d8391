"""Gangs: all of an order's waiting tasks or none of them.

Tried in two orders only: of all ways to fill targets there are too many to say that none would do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from controlplane.engine import words
from controlplane.engine.kept import UNLIMITED, Beneficiary
from controlplane.engine.laying import Laid, place
from controlplane.engine.room import Room
from controlplane.engine.service import Group
from controlplane.engine.signature import Signature
from controlplane.engine.verdicts import reason_of

Parts = Sequence[tuple[Signature, Group]]


def arrange(room: Room, owner: str, parts: Parts) -> tuple[Parts, str | None]:
    """The parts in an order in which laying them one by one takes all of them; or as named, and why that is not so."""
    reason: str | None = None
    for order in _orders(room, parts):
        refused = refusal(room.trial(), owner, order)
        if refused is None:
            return order, None
        reason = reason or refused
    return parts, reason


def refusal(trial: Room, owner: str, parts: Parts) -> str | None:
    """Why the gang does not go in whole; None when it does. The trial is used up."""
    for signature, group in parts:
        allowed = trial.owners.allowance(owner, signature)
        done = place(trial, signature, min(group.count, allowed)).total
        trial.owners.take(owner, signature, done)
        if done < group.count:
            reason = reason_of(trial, signature, owner)
            return words.GANG if reason in _OF_ROOM else reason
    return None


def keep_room(room: Room, parts: Parts) -> bool:
    """Keeps the targets that the gang would use at the first moment at which all of it goes in, by the known ends of
    what runs; none when there is no such moment."""
    moments = room.ends.moments
    first, last = 0, len(moments) - 1
    found = _laid_at(room, parts, float(moments[last]))
    if found is None:
        return False
    while first < last:
        middle = (first + last) // 2
        earlier = _laid_at(room, parts, float(moments[middle]))
        if earlier is not None:
            last, found = middle, earlier
        else:
            first = middle + 1
    _keep(room, found, float(moments[last]))
    return True


def _keep(room: Room, found: tuple[Room, list[tuple[Signature, Group, Laid]]], until: float) -> None:
    then, laid = found
    there: dict[int, list[Beneficiary]] = {}
    for signature, group, places in laid:
        for row in places.rows:
            there.setdefault(row, []).append(Beneficiary(group.order, signature))
    for row, whom in there.items():
        names = {name for one in whom for name, _ in one.signature.needs}
        spare = {name: float(then.free[name][row]) for name in names}
        room.kept.keep(row, until, spare, int(then.slots[row]) if room.slotted else UNLIMITED, whom)
    room.shrunk()


def _laid_at(room: Room, parts: Parts, moment: float) -> tuple[Room, list[tuple[Signature, Group, Laid]]] | None:
    """The room at that moment, with the gang in it, and where its parts are; None when not all of it goes in."""
    for order in _orders(room, parts):
        then = room.trial()
        then.give_back(np.asarray(room.ends.when <= moment))
        laid = [(signature, group, place(then, signature, group.count)) for signature, group in order]
        if all(places.total == group.count for _, group, places in laid):
            return then, laid
    return None


def _orders(room: Room, parts: Parts) -> Iterator[Parts]:
    """As named; then large ones first, since small ones fill gaps, and those last that look for company."""
    yield parts
    again = sorted(parts, key=lambda part: (bool(part[0].affinity), -_size(room, part[0])))
    if again != list(parts):
        yield again


def _size(room: Room, signature: Signature) -> float:
    """Of all quantities the largest part of the largest target."""
    most = {name: float(capacity.max()) for name, capacity in room.capacity.items() if len(capacity)}
    return max((amount / most[name] for name, amount in signature.needs if most.get(name)), default=0.0)


_OF_ROOM = frozenset({words.CAPACITY, words.FULL, words.RESERVED, words.SPREAD, words.EXCLUSIVE, words.ANTI_AFFINITY})
