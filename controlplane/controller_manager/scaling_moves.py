"""Moves: placements that have not started and go to a target that has just come up.

Asked once for each newcomer, a moment after it came: a placement without a report by then waits in the line of its
target. The placement moves if the newcomer takes the work, by all filters of a cycle, and is then less full than the
other target is now. The placement is stopped with the reason `Moved`, which is tried again, and the cycles do the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from controlplane.cache.ledgers import Ledgers
from controlplane.engine.filtering import open_rows
from controlplane.engine.guarding import room_of
from controlplane.engine.signature import Signature, signature_of
from controlplane.engine.world import World
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.isolation import Bystander
from controlplane.model.quantity import Number
from controlplane.store import keys

REASON = "Moved"
MOST = 100
_MOST_LOOKED_AT = 10 * MOST


@dataclass(frozen=True, slots=True)
class Unstarted:
    """A placement without any report of a joblet."""

    fulfilment: Fulfilment
    revision: int
    signature: Signature


def unstarted(ledgers: Ledgers, world: World) -> list[Unstarted]:
    """A bounded number of placements; only targets with more placements than reports are looked into."""
    return list(islice(_unstarted(ledgers, world), _MOST_LOOKED_AT))


def _unstarted(ledgers: Ledgers, world: World) -> Iterator[Unstarted]:
    snapshot = ledgers.cache.snapshot
    for row in world.targets:
        if len(row.live) < snapshot.count(keys.INVENTORY, row.name):
            continue
        for identity, fulfilment in sorted(row.live.items()):
            ledger = ledgers.orders.get(fulfilment.order)
            place = snapshot.get(keys.DESIRED, row.name, identity)
            reported = snapshot.has(keys.INVENTORY, row.name, identity)
            if ledger is None or place is None or reported or fulfilment.want == "stop":
                continue
            jobs = {task.job for task in fulfilment.tasks}
            job = next((resolved.job for resolved in ledger.resolved.jobs if jobs == {resolved.job.name}), None)
            # Tasks whose place depends on other tasks of their order stay with them.
            together = ledger.resolved.gang or (job is not None and job.spread == "order")
            if job is not None and not together and not ledger.order.cancel:
                facts = world.book.facts(ledger.order, job)
                yield Unstarted(fulfilment, place.revision, signature_of(ledger, job, facts))


def choose(world: World, newcomer: str, candidates: Sequence[Unstarted]) -> list[Unstarted]:
    """The placements that move, a bounded number."""
    room = room_of(world, Bystander())
    world = room.world
    row = world.floor.row(newcomer)
    if row is None:
        return []
    free = {target.name: dict(target.free) for target in world.targets}
    capacity = {target.name: target.capacity for target in world.targets}
    chosen: list[Unstarted] = []
    for candidate in candidates:
        source = candidate.fulfilment.target
        if source not in capacity:
            continue
        if len(chosen) == MOST or source == newcomer or row not in open_rows(room, candidate.signature):
            continue
        needs = {name: amount for name, amount in candidate.fulfilment.requests.items() if amount > 0}
        if _load(capacity[newcomer], free[newcomer], needs) >= _load(capacity[source], free[source], {}):
            continue
        for name, amount in needs.items():
            free[newcomer][name] = free[newcomer].get(name, 0) - amount
            free[source][name] = free[source].get(name, 0) + amount
        for _ in candidate.fulfilment.tasks:
            room.take_one(candidate.signature, row)
        chosen.append(candidate)
    return chosen


def _load(capacity: Mapping[str, Number], free: Mapping[str, Number], more: Mapping[str, Number]) -> float:
    """How full a target is with this much more work, by the fullest quantity; 1 is full."""
    parts = ((amount - free.get(name, 0) + more.get(name, 0)) / amount for name, amount in capacity.items() if amount)
    return max(parts, default=1.0)
