"""The chooser: strictly by priority, then by age, each group onto the targets with the most room.

Simple equivalent: sort all waiting tasks by (priority, age); give each the target with the most room for it, or none.
This version differs in two ways only: tasks with one signature queue together, and once a signature fits nowhere all
of its queue is passed over, since room only shrinks within a cycle. Work grows with placements and queues, not tasks.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from controlplane.engine import verdict
from controlplane.engine.world import Signature, World
from controlplane.model.quantity import Number

VERSION = "simple-1"


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks of one job of one order that may be placed now."""

    order: str
    job: str
    count: int


@dataclass(frozen=True, slots=True)
class Queue:
    """Groups with one priority and one signature, oldest first; `tasks` is how many tasks they hold in all."""

    priority: int
    signature: Signature
    groups: Iterable[Group]
    tasks: int


@dataclass(frozen=True, slots=True)
class Placement:
    order: str
    job: str
    target: str
    count: int
    signature: Signature


@dataclass(frozen=True, slots=True)
class Decision:
    placements: tuple[Placement, ...]
    considered: int
    refused: dict[str, int]

    def placed(self) -> int:
        return sum(placement.count for placement in self.placements)

    def digest(self) -> str:
        text = hashlib.sha256()
        for placement in self.placements:
            text.update(f"{placement.order}/{placement.job}>{placement.target}*{placement.count}\n".encode())
        text.update(repr(sorted(self.refused.items())).encode())
        return text.hexdigest()


class _Room:
    """What is left in this cycle, per target, and the targets of each signature with the roomiest first."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._free: list[dict[str, Number]] = [dict(row.free) for row in world.targets]
        self._slots = [row.slots for row in world.targets]
        self._heaps: dict[Signature, list[tuple[int, int]]] = {}
        self.held = set(world.held)

    def _fits(self, signature: Signature, row: int) -> int:
        return verdict.room(signature, self._free[row], self._slots[row])

    def _heap(self, signature: Signature) -> list[tuple[int, int]]:
        heap = self._heaps.get(signature)
        if heap is None:
            rows = (at for at, row in enumerate(self._world.targets) if verdict.refusal(signature, row) is None)
            heap = [(-fits, at) for at in rows if (fits := self._fits(signature, at))]
            heapq.heapify(heap)
            self._heaps[signature] = heap
        return heap

    def place(self, signature: Signature, most: int) -> Iterator[tuple[str, int]]:
        """Takes room for up to `most` tasks, evenly over the roomiest targets, as (target, count)."""
        heap = self._heap(signature)
        share = -(-most // max(len(heap), 1))
        while most and heap:
            known, row = heap[0]
            fits = self._fits(signature, row)
            if fits != -known:
                # Room was taken since: put it back where it belongs now.
                heapq.heapreplace(heap, (-fits, row)) if fits else heapq.heappop(heap)
                continue
            count = min(fits, share, most)
            self._take(signature, row, count)
            left = fits - count
            heapq.heapreplace(heap, (-left, row)) if left else heapq.heappop(heap)
            most -= count
            yield self._world.targets[row].name, count

    def _take(self, signature: Signature, row: int, count: int) -> None:
        free = self._free[row]
        for name, amount in signature.requests:
            free[name] = free.get(name, 0) - amount * count
        slots = self._slots[row]
        if slots is not None:
            self._slots[row] = slots - count


def decide(world: World, queues: Iterable[Queue], budget: int) -> Decision:
    """Which waiting tasks go where, at most `budget` of them, and how many of the rest wait for which reason."""
    room = _Room(world)
    # The job's name settles ties, so that a decision does not depend on how the queues came to be.
    order: list[tuple[int, str, str, int, Group, Iterator[Group], Queue]] = []
    considered = 0
    for at, queue in enumerate(queues):
        groups = iter(queue.groups)
        head = next(groups, None)
        considered += queue.tasks
        if head is not None:
            order.append((-queue.priority, head.order, head.job, at, head, groups, queue))
    heapq.heapify(order)
    placements: list[Placement] = []
    refused: Counter[str] = Counter()
    placed_of: Counter[int] = Counter()
    stuck: set[Signature] = set()
    while order and budget > 0:
        priority, _, _, at, group, groups, queue = heapq.heappop(order)
        done = 0
        if queue.signature not in stuck:
            done = _place(room, queue.signature, group, budget, placements)
        budget -= done
        placed_of[at] += done
        if done < min(group.count, budget + done):
            # Nothing of this signature fits any more, at this priority or a lower one.
            stuck.add(queue.signature)
            refused[verdict.HELD if _is_held(room, queue.signature) else _why(queue.signature, world)] += (
                queue.tasks - placed_of[at]
            )
            continue
        head = group if done < group.count else next(groups, None)
        if head is not None:
            heapq.heappush(order, (priority, head.order, head.job, at, head, groups, queue))
    for _, _, _, at, _, _, queue in order:
        if queue.tasks > placed_of[at]:
            refused[verdict.QUEUED] += queue.tasks - placed_of[at]
    return Decision(tuple(placements), considered, dict(refused))


def _place(room: _Room, signature: Signature, group: Group, budget: int, placements: list[Placement]) -> int:
    """Places what fits of the group; tasks that need a unique resource one at a time, and only while it is free."""
    most = min(group.count, budget)
    if signature.unique:
        if _is_held(room, signature):
            return 0
        most = 1
    done = 0
    for target, count in room.place(signature, most):
        placements.append(Placement(group.order, group.job, target, count, signature))
        done += count
    if done and signature.unique:
        room.held.update(signature.unique)
    return done


def _is_held(room: _Room, signature: Signature) -> bool:
    return any(name in room.held for name in signature.unique)


def _why(signature: Signature, world: World) -> str:
    found = verdict.reason(signature, world)
    return verdict.CAPACITY if found == verdict.QUEUED else found
