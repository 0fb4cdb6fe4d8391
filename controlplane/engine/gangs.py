"""Gangs: all of an order's waiting tasks are placed, or none of them.

The groups of a gang are tried in two sequences only: there are too many ways to fill targets to prove that no way fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from controlplane.engine import reason_codes
from controlplane.engine.filtering import ENDED_BY_OTHERS, reason_of
from controlplane.engine.kept import UNLIMITED, Beneficiary
from controlplane.engine.laying import Laid, place
from controlplane.engine.room import Room
from controlplane.engine.service import Group
from controlplane.engine.signature import Signature

Parts = Sequence[tuple[Signature, Group]]


def arrange(room: Room, owner: str, parts: Parts) -> tuple[Parts, str | None]:
    """The parts in a sequence in which laying part after part takes all tasks, and None; or the parts as given, and the
    reason why no tried sequence fits."""
    reason: str | None = None
    for order in _orders(room, parts):
        refused = refusal(room.trial(), owner, order)
        if refused is None:
            return order, None
        reason = reason or refused
    return parts, reason


def refusal(trial: Room, owner: str, parts: Parts) -> str | None:
    """Why the gang does not fit as a whole; None when the gang fits. The trial is used up."""
    for signature, group in parts:
        allowed = trial.owners.allowance(owner, signature)
        done = place(trial, signature, min(group.count, allowed)).total
        trial.owners.take(owner, signature, done)
        if done < group.count:
            reason = reason_of(trial, signature, owner)
            return reason_codes.GANG if reason in ENDED_BY_OTHERS else reason
    return None


def keep_room(room: Room, parts: Parts) -> bool:
    """Keeps the targets which the gang would use at the first moment at which the whole gang fits, by the known ends of
    running work; keeps no target when there is no such moment."""
    moments = room.ends.moments
    first, last = 0, len(moments) - 1
    arrangement = _laid_at(room, parts, float(moments[last]))
    if arrangement is None:
        return False
    while first < last:
        middle = (first + last) // 2
        earlier = _laid_at(room, parts, float(moments[middle]))
        if earlier is not None:
            last, arrangement = middle, earlier
        else:
            first = middle + 1
    _keep(room, arrangement, float(moments[last]))
    return True


def _keep(room: Room, arrangement: tuple[Room, list[tuple[Signature, Group, Laid]]], until: float) -> None:
    then, laid = arrangement
    there: dict[int, list[Beneficiary]] = {}
    for signature, group, places in laid:
        for row in places.rows:
            there.setdefault(row, []).append(Beneficiary(group.order, signature))
    for row, whom in there.items():
        names = {name for beneficiary in whom for name, _ in beneficiary.signature.needs}
        spare = {name: float(then.free[name][row]) for name in names}
        room.kept.keep(row, until, spare, int(then.slots[row]) if room.slotted else UNLIMITED, whom)
    room.shrunk()


def _laid_at(room: Room, parts: Parts, moment: float) -> tuple[Room, list[tuple[Signature, Group, Laid]]] | None:
    """The room at this moment with the gang placed, and the places of the parts; None when the gang does not fit as a
    whole."""
    for order in _orders(room, parts):
        then = room.trial()
        then.give_back(np.asarray(room.ends.when <= moment))
        laid = [(signature, group, place(then, signature, group.count)) for signature, group in order]
        if all(places.total == group.count for _, group, places in laid):
            return then, laid
    return None


def _orders(room: Room, parts: Parts) -> Iterator[Parts]:
    """The parts as given; then sorted: large parts first, since small parts fill gaps, parts with affinity last."""
    yield parts
    again = sorted(parts, key=lambda part: (bool(part[0].affinity), -_size(room, part[0])))
    if again != list(parts):
        yield again


def _size(room: Room, signature: Signature) -> float:
    """The size of a task as a part of the largest target; the largest part over all quantities."""
    most = {name: float(capacity.max()) for name, capacity in room.capacity.items() if len(capacity)}
    return max((amount / most[name] for name, amount in signature.needs if most.get(name)), default=0.0)
