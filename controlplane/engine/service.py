"""The order of service: priority strictly first, then the owner with the smallest dominant share, then the earliest
deadline, then age.

Groups with one priority, owner and signature form a queue. A turn serves one queue for as long as nobody else would
come before its next task.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from controlplane.engine.owners import QUANTUM, Owners
from controlplane.engine.signature import Signature

# (deadline, created, order, position of the job): sorts groups of one owner and priority.
Rank = tuple[str, str, str, int]
NO_DEADLINE = "~"
_GROUPS_A_TURN = 256


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks of one job of one order that may be placed now."""

    rank: Rank
    job: str
    count: int

    @property
    def order(self) -> str:
        return self.rank[2]


@dataclass(frozen=True, slots=True)
class Queue:
    """Groups with one priority, owner and signature in order of rank; `tasks` is how many they hold in all.

    Of a gang, `parts` holds the signature of each group: they are placed together or not at all.
    """

    priority: int
    owner: str
    signature: Signature
    groups: Iterable[Group]
    tasks: int
    parts: tuple[Signature, ...] = ()


@dataclass(slots=True)
class Line:
    """A queue while it is being served: `head` is its next group, of which `left` tasks are not served yet."""

    queue: Queue
    rest: Iterator[Group]
    head: Group
    left: int
    tasks: int

    def run(self, most: int, before: Rank | None) -> list[tuple[Group, int]]:
        """The next tasks, at most so many, of groups that rank before; always some of the first group.

        Of many groups only the first few: when none of them fits, the rest need not have been looked at.
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
    """All lines of one priority: per owner the one with the best head first."""

    lines: dict[str, list[tuple[Rank, int, Line]]] = field(default_factory=dict)
    # (share, rank of the owner's first group, owner): of equal shares the earlier deadline goes first, then the older.
    shares: list[tuple[float, Rank, str]] = field(default_factory=list)


@dataclass(slots=True)
class Turn:
    """One line's turn: it may place so many tasks before it is somebody else's."""

    line: Line
    most: int
    before: Rank | None


def _second(heap: list[Any]) -> int:
    """Where a heap of at least two has its second smallest."""
    return 2 if len(heap) > 2 and heap[2] < heap[1] else 1


class Service:
    def __init__(self, queues: Iterable[Queue], owners: Owners) -> None:
        self._owners = owners
        self._levels: dict[int, _Level] = {}
        for tie, queue in enumerate(queues):
            groups = iter(queue.groups)
            head = next(groups, None)
            if head is None:
                continue
            line = Line(queue, groups, head, head.count, queue.tasks)
            level = self._levels.setdefault(queue.priority, _Level())
            level.lines.setdefault(queue.owner, []).append((head.rank, tie, line))
        self._priorities = sorted(self._levels)

    def next(self) -> Turn | None:
        """Whose turn it is; None when everybody was served."""
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
        """The turn is over; a line that is stuck is not served again."""
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
        """Who was not served, or not wholly."""
        for level in self._levels.values():
            for lines in level.lines.values():
                yield from (line for _, _, line in lines)
