"""What waits, said task group by task group, and the queues that the engine is given of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from controlplane.engine.service import NO_DEADLINE, Group, Queue, Rank
from controlplane.engine.signature import Signature
from tests.builders import NOW


@dataclass(frozen=True)
class Waiting:
    """Tasks of one job of one order; of orders without a deadline those with smaller names are older."""

    priority: int
    order: str
    job: str
    count: int
    signature: Signature = field(default_factory=Signature)
    owner: str = "somebody"
    deadline: str = NO_DEADLINE
    created: str = NOW
    position: int = 0
    gang: bool = False

    @property
    def rank(self) -> Rank:
        return (self.deadline, self.created, self.order, self.position)


def queues(waiting: Iterable[Waiting]) -> list[Queue]:
    """Groups with one priority, owner and signature share a queue; a gang, its parts in their order, has its own."""
    lines: dict[tuple[object, ...], list[Waiting]] = {}
    for one in sorted(waiting, key=lambda one: one.rank):
        apart = (one.order,) if one.gang else (one.priority, one.owner, one.signature)
        lines.setdefault(apart, []).append(one)
    return [
        Queue(
            priority=some[0].priority,
            owner=some[0].owner,
            signature=some[0].signature,
            groups=[Group(one.rank, one.job, one.count) for one in some],
            tasks=sum(one.count for one in some),
            parts=tuple(one.signature for one in some) if some[0].gang else (),
        )
        for some in lines.values()
    ]
