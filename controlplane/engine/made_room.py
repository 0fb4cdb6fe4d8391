"""Made room: room on a target which becomes free because work was stopped for a task of an order.

The stop is on record in etcd (`Preemption`), so every cycle knows the order until the room is used. In the order of
service, a made room comes before all other work of the same priority: the task takes the room as soon as the stopped
work has ended, and until then the room, the quota and the unique resources of the task are kept. Work of a higher
priority still goes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.cache.snapshot import Snapshot
from controlplane.model.fulfilment import Preemption
from controlplane.store import keys


@dataclass(frozen=True, slots=True)
class MadeRoom:
    """Room for a task of the job of the order; free when none of the stopped fulfilments is left on the target."""

    cycle: int
    name: str
    target: str
    order: str
    job: str
    stopped: frozenset[str]


def made_rooms(snapshot: Snapshot) -> tuple[MadeRoom, ...]:
    """The rooms on record, the oldest first."""
    return rooms_of(snapshot.objects(keys.PREEMPTIONS))


def rooms_of(preemptions: Iterable[Preemption]) -> tuple[MadeRoom, ...]:
    """The rooms made by stopping these fulfilments, the oldest first."""
    together: dict[tuple[int, str, str, str, str], set[str]] = {}
    for each in preemptions:
        together.setdefault((each.cycle, each.room, each.target, each.by, each.job), set()).add(each.fulfilment)
    return tuple(MadeRoom(*key, frozenset(stopped)) for key, stopped in sorted(together.items()))
