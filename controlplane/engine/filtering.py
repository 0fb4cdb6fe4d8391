"""Filtering: which targets take a task, and which filter refuses the task on the other targets.

`FILTERS` is the algorithm: each filter judges every target in this order, and the first refusing filter gives the
reason. The rest of the module derives from the tuple. The nearer a task came to fitting, the later the reason stands
in the tuple.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.filters.affinity import Affinity
from controlplane.engine.filters.anti_affinity import AntiAffinity
from controlplane.engine.filters.exclusive_use import ExclusiveUse
from controlplane.engine.filters.forbidding_rules import ForbiddingRules
from controlplane.engine.filters.free_amounts import FreeAmounts
from controlplane.engine.filters.free_slots import FreeSlots
from controlplane.engine.filters.kept_target import KeptTarget
from controlplane.engine.filters.left_target import LeftTarget
from controlplane.engine.filters.opening_window import OpeningWindow
from controlplane.engine.filters.requiring_rules import RequiringRules
from controlplane.engine.filters.room_filter import RoomFilter
from controlplane.engine.filters.rule_limits import RuleLimits
from controlplane.engine.filters.spread_tasks import SpreadTasks
from controlplane.engine.filters.static_filter import StaticFilter
from controlplane.engine.filters.target_readiness import TargetReadiness
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature
from controlplane.engine.target_columns import STATIC_FILTERS

# Filters which say whether a target is willing to take such a task at all.
OF_THE_TARGET: tuple[RoomFilter, ...] = (
    ForbiddingRules(),
    RequiringRules(),
    TargetReadiness(),
    OpeningWindow(),
    LeftTarget(),
    Affinity(),
    AntiAffinity(),
    ExclusiveUse(),
    SpreadTasks(),
)
# Filters which say whether there is room. Free amounts are checked for every task and refuse most often, so this filter
# has a fast path (`Room.able`).
_BOUNDS: tuple[RoomFilter, ...] = (RuleLimits(), KeptTarget())
_BEYOND_AMOUNTS: tuple[RoomFilter, ...] = (FreeSlots(), *_BOUNDS)
OF_ROOM: tuple[RoomFilter, ...] = (FreeAmounts(), *_BEYOND_AMOUNTS)
FILTERS: tuple[StaticFilter | RoomFilter, ...] = (*STATIC_FILTERS, *OF_THE_TARGET, *OF_ROOM)
CODES = tuple(each.code for each in FILTERS)
# Codes of refusals which end when other work ends.
ENDED_BY_OTHERS = frozenset(each.code for each in FILTERS if each.ends_with_other_work)
_NUMBERS = {code: number for number, code in enumerate(CODES)}
FITS = -1


def willing(room: Room, signature: Signature) -> Rows:
    """The targets which could refuse such a task only for want of room."""
    rows = room.floor.static(signature).rows
    if signature.asks or room.asks or room.neighbours.matter:
        return _left(OF_THE_TARGET, room, signature, rows)
    return rows


def open_rows(room: Room, signature: Signature) -> Rows:
    """The targets which take at least a single such task now."""
    rows = willing(room, signature)
    able = room.able(signature, rows)
    if not able.all():
        rows = rows[able]
    if room.slotted or room.ruled or room.kept.any:
        return _left(_BEYOND_AMOUNTS, room, signature, rows)
    return rows


def unreserved(room: Room, signature: Signature, rows: Rows) -> Rows:
    """The rows whose targets are closed to such a task neither by the limit of a rule nor by kept room."""
    return _left(_BOUNDS, room, signature, rows) if room.ruled or room.kept.any else rows


def lacking(room: Room, signature: Signature) -> str | None:
    """The code of the room filter which leaves no willing target for such a task; None when a target takes the task, or
    no target is willing."""
    rows = willing(room, signature)
    if not len(rows):
        return None
    if room.hopeless(signature) and not room.kept.any:
        return reason_codes.CAPACITY
    for each in OF_ROOM:
        rows = _left((each,), room, signature, rows)
        if not len(rows):
            return each.code
    return None


def _left(filters: Iterable[RoomFilter], room: Room, signature: Signature, rows: Rows) -> Rows:
    """The rows which none of the filters refuses."""
    for each in filters:
        if each.asked_by(signature) or each.present_in(room):
            masks = list(each.refused(room, signature, rows))
            refused = masks[0] if len(masks) == 1 else np.logical_or.reduce(masks) if masks else None
            if refused is not None and refused.any():
                rows = rows[~refused]
    return rows


def refusals(room: Room, signature: Signature) -> Iterator[tuple[str, Mask]]:
    """The code of every filter which applies, in order, with a mask of the targets refusing such a task."""
    yield from room.floor.static(signature).refusals
    for each in (*OF_THE_TARGET, *OF_ROOM):
        if each.asked_by(signature) or each.present_in(room):
            yield from ((each.code, mask) for mask in each.refused(room, signature, room.floor.all_rows))


def first_refusals(room: Room, signature: Signature) -> NDArray[np.int64]:
    """For each target the first filter refusing such a task, as a position in CODES, or FITS."""
    numbers = np.full(len(room.floor.targets), FITS)
    for code, mask in refusals(room, signature):
        numbers[mask & (numbers == FITS)] = _NUMBERS[code]
    return numbers


def tally(room: Room, signature: Signature) -> tuple[dict[str, int], str]:
    """How many targets refuse such a task by which filter, and the target which comes closest to taking the task."""
    numbers = first_refusals(room, signature)
    if not len(numbers):
        return {}, ""
    kinds, counts = np.unique(numbers[numbers != FITS], return_counts=True)
    by_code = {CODES[number]: int(count) for number, count in zip(kinds.tolist(), counts.tolist(), strict=True)}
    return by_code, room.floor.names[int(numbers.argmax())]


def reason_of(room: Room, signature: Signature, owner: str) -> str:
    """The reason for waiting: of the refusals of all targets the nearest miss; Queued when the task would fit on some
    target."""
    if not room.floor.targets:
        return reason_codes.NO_TARGETS
    if room.owners.allowance(owner, signature) <= 0:
        return reason_codes.QUOTA
    code = lacking(room, signature)
    if code is not None:
        return code
    numbers = first_refusals(room, signature)
    if (numbers == FITS).any():
        return reason_codes.HELD if room.allowance(signature) <= 0 else reason_codes.QUEUED
    return CODES[int(numbers.max())]
