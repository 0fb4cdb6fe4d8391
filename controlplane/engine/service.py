"""The order of service: priority strictly first, then the owner with the smallest dominant share, then the earliest
deadline, then age.

Groups with the same priority, owner and signature form a queue. A turn serves a single queue, for as long as no other
queue would come before the next task of the served queue.

A decision may serve a hundred thousand queues. Groups, queues, lines and turns never refer to each other in a circle,
so the garbage collector does not track them: its runs would take a good part of the time of the decision.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from controlplane.engine.owners import QUANTUM, Owners
from controlplane.engine.signature import Signature

# (deadline, created, order, position of the job): sorts groups of the same owner and priority.
Rank = tuple[str, str, str, int]
NO_DEADLINE = "~"
_GROUPS_A_TURN = 256


class Group(msgspec.Struct, frozen=True, gc=False):
    """Tasks of a single job of an order, ready to be placed now."""

    rank: Rank
    job: str
    count: int

    @property
    def order(self) -> str:
        return self.rank[2]


class Queue(msgspec.Struct, frozen=True, gc=False):
    """Groups with the same priority, owner and signature in order of rank; `tasks` is the number of tasks of all
    groups.

    Of a gang, `parts` holds the signature of each group: the groups are placed together or not at all.
    """

    priority: int
    owner: str
    signature: Signature
    groups: Iterable[Group]
    tasks: int
    parts: tuple[Signature, ...] = ()


class Line(msgspec.Struct, eq=False, gc=False):
    """A queue being served: `head` is the next group, of which `left` tasks are not served yet."""

    queue: Queue
    rest: Iterator[Group]
    head: Group
    left: int
    tasks: int

    def run(self, most: int, before: Rank | None) -> list[tuple[Group, int]]:
        """The next tasks, at most `most`, of groups which rank before `before`; always some tasks of the first group.

        Of many groups only the first few are taken: when no task of the run fits, the rest was never looked at.
        """
        found: list[tuple[Group, int]] = []
        head, left = self.head, self.left
        while most > 0 and len(found) < _GROUPS_A_TURN:
            count = min(left, most)
            found.append((head, count))
            most -= count
            if count < left:
                self.head, self.left = head, left - count
                return found
            following = next(self.rest, None)
            if following is None:
                self.left = 0
                return found
            head, left = following, following.count
            if before is not None and head.rank > before:
                break
        self.head, self.left = head, left
        return found


@dataclass(slots=True)
class _Level:
    """All lines of the same priority: for each owner the line with the best head first."""

    lines: dict[str, list[tuple[Rank, int, Line]]] = field(default_factory=dict)
    # (share, rank of the owner's first group, owner): of equal shares the earlier deadline goes first, then the older.
    shares: list[tuple[float, Rank, str]] = field(default_factory=list)


class Turn(msgspec.Struct, eq=False, gc=False):
    """The turn of a line: the line may place up to `most` tasks before the turn of the next line."""

    line: Line
    most: int
    before: Rank | None


def _second(heap: list[Any]) -> int:
    """The position of the second smallest element in a heap of at least two elements."""
    return 2 if len(heap) > 2 and heap[2] < heap[1] else 1


def _without_a_task(groups: Iterable[Group], order: str, job: str) -> Iterator[Group]:
    """The groups, with a single task fewer in the first group of the job."""
    missing = 1
    for group in groups:
        if missing and (group.order, group.job) == (order, job):
            missing = 0
            if group.count == 1:
                continue
            group = msgspec.structs.replace(group, count=group.count - 1)
        yield group


class Service:
    def __init__(self, queues: Iterable[Queue], owners: Owners) -> None:
        self._owners = owners
        self._levels: dict[int, _Level] = {}
        for tie, queue in enumerate(queues):
            groups = iter(queue.groups)
            head = next(groups, None)
            if head is None:
                continue
            level = self._levels.get(queue.priority)
            if level is None:
                level = self._levels[queue.priority] = _Level()
            lines = level.lines.get(queue.owner)
            if lines is None:
                lines = level.lines[queue.owner] = []
            lines.append((head.rank, tie, Line(queue, groups, head, head.count, queue.tasks)))
        self._priorities = sorted(self._levels)

    def priority(self) -> int | None:
        """The highest priority with a line not yet served; None when all lines were served."""
        while self._priorities and not self._levels[self._priorities[-1]].lines:
            del self._levels[self._priorities.pop()]
        return self._priorities[-1] if self._priorities else None

    def take_out(self, queue: Queue, order: str, job: str) -> Line | None:
        """Takes a task out of the line of `queue` before the priority of the queue is served, or the whole line of a
        gang. Returns the line holding the task, None when the line is not there any more."""
        level = self._levels.get(queue.priority)
        if level is None:
            return None
        lines = level.lines.get(queue.owner, [])
        at = next((at for at, (_, _, line) in enumerate(lines) if line.queue is queue), None)
        if at is None:
            return None
        _, tie, line = lines.pop(at)
        groups = [] if queue.parts else list(_without_a_task((line.head, *line.rest), order, job))
        if groups:
            rest = Line(queue, iter(groups[1:]), groups[0], groups[0].count, line.tasks - 1)
            lines.append((rest.head.rank, tie, rest))
        if not lines:
            level.lines.pop(queue.owner)
        return line

    def next(self) -> Turn | None:
        """The next turn; None when all lines were served."""
        while self._priorities:
            level = self._levels[self._priorities[-1]]
            if not level.shares and level.lines:
                self._open(level)
            if level.lines:
                return self._turn(level)
            del self._levels[self._priorities.pop()]
        return None

    def _open(self, level: _Level) -> None:
        for lines in level.lines.values():
            heapq.heapify(lines)
        level.shares = [(self._owners.share(owner), lines[0][0], owner) for owner, lines in level.lines.items()]
        heapq.heapify(level.shares)

    def _turn(self, level: _Level) -> Turn:
        owner = level.shares[0][2]
        lines = level.lines[owner]
        line = lines[0][2]
        following = lines[_second(lines)][0] if len(lines) > 1 else None
        most = line.tasks
        if len(level.shares) > 1 and most > 1:
            rival = level.shares[_second(level.shares)][0]
            most = min(most, self._owners.until(owner, line.queue.signature, rival + QUANTUM))
        return Turn(line, most, following)

    def done(self, turn: Turn, *, stuck: bool) -> None:
        """Ends the turn; a stuck line is not served again."""
        level = self._levels[self._priorities[-1]]
        owner = turn.line.queue.owner
        lines = level.lines[owner]
        tie = lines[0][1]
        if stuck or not turn.line.left:
            heapq.heappop(lines)
        else:
            heapq.heapreplace(lines, (turn.line.head.rank, tie, turn.line))
        if lines:
            heapq.heapreplace(level.shares, (self._owners.share(owner), lines[0][0], owner))
        else:
            heapq.heappop(level.shares)
            del level.lines[owner]

    def waiting(self) -> Iterator[Line]:
        """The lines which were not served, or not completely."""
        for level in self._levels.values():
            for lines in level.lines.values():
                yield from (line for _, _, line in lines)
