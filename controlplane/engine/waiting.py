"""Waiting tasks in a forecast: tasks which may be placed, and tasks whose turn comes when other jobs of their order are
done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import msgspec

from controlplane.engine.service import Group, Queue
from controlplane.engine.signature import Signature
from controlplane.model.fulfilment import Fulfilment

# An order and the name of a job of the order.
OrderJob = tuple[str, str]
_NOBODY: Mapping[OrderJob, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Waiting:
    """Tasks of a single job of an order, and the queue in which the tasks wait; `gang` is the order of a gang, since a
    gang waits in a queue of its own."""

    priority: int
    owner: str
    signature: Signature
    group: Group
    gang: str = ""

    @property
    def line(self) -> tuple[int, str, Signature | None, str]:
        return (self.priority, self.owner, None if self.gang else self.signature, self.gang)

    def counting(self, count: int) -> Waiting:
        """`count` such tasks."""
        return replace(self, group=msgspec.structs.replace(self.group, count=count))


@dataclass(frozen=True, slots=True)
class Successor:
    """Tasks which wait until other jobs of their order are done; `needs` are the jobs not done at the beginning."""

    waiting: Waiting
    needs: frozenset[str]


class Successors:
    """Tasks which wait for other jobs. `left` is how many tasks of each job have yet to end."""

    def __init__(
        self, successors: Iterable[Successor] = (), left: Mapping[OrderJob, int] = MappingProxyType({})
    ) -> None:
        self._left = dict(left)
        self._successors: dict[str, list[Successor]] = {}
        for successor in successors:
            self._successors.setdefault(successor.waiting.group.order, []).append(successor)

    def __contains__(self, order: str) -> bool:
        return order in self._successors

    def after(self, over: Iterable[Fulfilment]) -> Iterator[Waiting]:
        """The tasks whose turn comes when the work of these fulfilments is done too."""
        orders: dict[str, None] = {}
        for fulfilment in over:
            for task in fulfilment.tasks if fulfilment.order in self._successors else ():
                orders[fulfilment.order] = None
                key = (fulfilment.order, task.job)
                if key in self._left:
                    self._left[key] -= 1
        for order in orders:
            yield from self._come(order)

    def _come(self, order: str) -> Iterator[Waiting]:
        later = []
        for successor in self._successors.pop(order):
            if any(self._left.get((order, name), 0) > 0 for name in successor.needs):
                later.append(successor)
            else:
                yield successor.waiting
        if later:
            self._successors[order] = later


def waiting_in(queues: Iterable[Queue]) -> Iterator[Waiting]:
    for queue in queues:
        groups = list(queue.groups)
        parts = queue.parts or (queue.signature,) * len(groups)
        for group, signature in zip(groups, parts, strict=False):
            yield Waiting(queue.priority, queue.owner, signature, group, group.order if queue.parts else "")
