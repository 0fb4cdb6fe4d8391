"""The decision of a cycle: which tasks go to which targets, which fulfilments are stopped, and why the rest waits.

Values only: `decide` makes decisions, `scheduler.binder` turns them into transactions.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from controlplane.engine.kept import KeptRoom
from controlplane.engine.made_room import MadeRoom
from controlplane.engine.preempting import Eviction
from controlplane.engine.signature import Signature
from controlplane.model.leadership import WaitingGroup


class Placement(msgspec.Struct, frozen=True, gc=False):
    order: str
    job: str
    target: str
    count: int
    signature: Signature
    gang: bool = False


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Placed tasks of a single group, as columns: rows of targets and how many tasks went to each target."""

    order: str
    job: str
    signature: Signature
    gang: bool
    rows: list[int]
    counts: list[int]


@dataclass(frozen=True)
class Decision:
    """The result of a cycle, in columns; `placements` lists the same placements as single values. `used_rooms` is made
    room which needs no record any more; `kept` is the room which the cycle kept for tasks not fitting yet."""

    targets: list[str]
    batches: tuple[Batch, ...]
    considered: int
    refused: dict[str, int]
    evictions: tuple[Eviction, ...] = ()
    waiting: tuple[WaitingGroup, ...] = ()
    used_rooms: tuple[MadeRoom, ...] = ()
    kept: KeptRoom | None = field(default=None, compare=False, repr=False)

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        return tuple(
            Placement(batch.order, batch.job, self.targets[row], count, batch.signature, batch.gang)
            for batch in self.batches
            for row, count in zip(batch.rows, batch.counts, strict=True)
        )

    def placed(self) -> int:
        return sum(sum(batch.counts) for batch in self.batches)

    def digest(self) -> str:
        text = hashlib.sha256()
        for placement in self.placements:
            text.update(f"{placement.order}/{placement.job}>{placement.target}*{placement.count}\n".encode())
        for eviction in self.evictions:
            text.update(f"{eviction.fulfilment}<{eviction.target}\n".encode())
        text.update(repr(sorted(self.refused.items())).encode())
        return text.hexdigest()
