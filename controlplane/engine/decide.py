"""The calculation engine: which waiting tasks go where, and why the rest waits.

Simple equivalent: take the waiting tasks in the order of service; give each the best target that no filter refuses, or
none; who does not fit but could once others end has room kept for it. This version serves runs of equal tasks at once,
and passes over what cannot fit any more, since room only shrinks within a cycle. Same input, same output.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from controlplane.engine import gangs, preempting, reserving, words
from controlplane.engine.laying import Laid, place
from controlplane.engine.preempting import Eviction, Soon
from controlplane.engine.room import Room
from controlplane.engine.service import Group, Line, Queue, Service, Turn
from controlplane.engine.signature import Signature
from controlplane.engine.verdicts import reason_of, tally
from controlplane.engine.world import World
from controlplane.model.leadership import WaitingGroup

VERSION = "columns-4"
_MOST_DISPLACING = 100
_MOST_NOTED = 16


class Placement(msgspec.Struct, frozen=True):
    order: str
    job: str
    target: str
    count: int
    signature: Signature
    gang: bool = False


class Batch(msgspec.Struct, frozen=True):
    """Tasks of one group, as columns: rows of targets and how many went to each."""

    order: str
    job: str
    signature: Signature
    gang: bool
    rows: list[int]
    counts: list[int]


@dataclass(frozen=True)
class Decision:
    """What was decided, in columns; `placements` is the same one by one."""

    targets: list[str]
    batches: tuple[Batch, ...]
    considered: int
    refused: dict[str, int]
    evictions: tuple[Eviction, ...] = ()
    waiting: tuple[WaitingGroup, ...] = ()

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


# Told of a queue whose turn raised, which is then over.
Blame = Callable[[Queue, Exception], None]


def decide(world: World, queues: Iterable[Queue], blame: Blame | None = None) -> Decision:
    """With `blame`, a queue that raises does not end the decision, whose result then only says who is to blame."""
    queues = list(queues)
    cycle = _Cycle(world, queues)
    while cycle.budget > 0 and (turn := cycle.service.next()) is not None:
        serve = cycle.serve_gang if turn.line.queue.parts else cycle.serve
        try:
            stuck = serve(turn)
        except Exception as error:
            if blame is None:
                raise
            blame(turn.line.queue, error)
            stuck = True
        cycle.service.done(turn, stuck=stuck)
    for line in cycle.service.waiting():
        cycle.refused[words.QUEUED] += line.tasks
    return Decision(
        targets=world.floor.names,
        batches=tuple(cycle.batches),
        considered=sum(queue.tasks for queue in queues),
        refused={reason: count for reason, count in cycle.refused.items() if count},
        evictions=tuple(cycle.evictions),
        waiting=tuple(cycle.waiting),
    )


@dataclass(slots=True)
class _Cycle:
    world: World
    queues: list[Queue]
    room: Room = field(init=False)
    service: Service = field(init=False)
    budget: int = field(init=False)
    batches: list[Batch] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    stuck: dict[Signature, str] = field(default_factory=dict)
    waiting: list[WaitingGroup] = field(default_factory=list)
    reservations: int = field(init=False)
    soon: Soon = field(default_factory=Soon)

    def __post_init__(self) -> None:
        self.room = Room(self.world)
        self.service = Service(self.queues, self.room.owners)
        self.budget = self.world.settings.cycle_budget
        # Room that is kept is room that is not used: never more than a part of it.
        self.reservations = min(self.world.settings.reservations, 1 + len(self.world.targets) // 4)

    def serve(self, turn: Turn) -> bool:
        """Places what it may of the line; True when nothing more of it fits."""
        line = turn.line
        signature, owner = line.queue.signature, line.queue.owner
        if (known := self.stuck.get(signature)) is not None:
            self.refused[known] += line.tasks
            return True
        most = 1 if self.room.hopeless(signature) else min(turn.most, self.budget)
        run = line.run(most, turn.before)
        wanted = sum(count for _, count in run)
        laid = place(self.room, signature, min(wanted, self.room.owners.allowance(owner, signature)))
        done = self._book(run, laid, signature, line)
        if done == wanted:
            return False
        reason = reason_of(self.room, signature, owner)
        self.refused[reason] += line.tasks
        self._note(_first_left(run, done), line, signature, reason)
        if reason != words.QUOTA and not signature.affinity:
            # Its owner's quota apart, and company that may still come, what does not fit now fits nobody later.
            self.stuck[signature] = reason
        self._look_ahead(line, reason)
        return True

    def serve_gang(self, turn: Turn) -> bool:
        """Places all groups of the gang or none."""
        line = turn.line
        if line.tasks > self.budget and self.batches:
            # It goes first when a cycle has its whole budget left.
            self.budget = 0
            return False
        groups = [line.head, *line.rest]
        named = list(zip(line.queue.parts, groups, strict=True))
        parts, reason = gangs.arrange(self.room, line.queue.owner, named)
        if reason is None:
            for signature, group in parts:
                laid = place(self.room, signature, group.count)
                self._book([(group, group.count)], laid, signature, line, gang=True)
            line.left = 0
            return False
        self.refused[reason] += line.tasks
        self._note(groups[0], line, line.queue.signature, reason)
        if reason == words.GANG and self.reservations > 0:
            self.reservations -= gangs.keep_room(self.room, parts)
        return True

    def _book(
        self, run: list[tuple[Group, int]], laid: Laid, signature: Signature, line: Line, *, gang: bool = False
    ) -> int:
        """Hands the places out to the groups, first come first served; how many there were."""
        done = laid.total
        if done and len(run) == 1:
            group = run[0][0]
            self.batches.append(Batch(group.order, group.job, signature, gang, laid.rows, laid.counts))
        elif done:
            self.batches += _handed_out(run, laid, signature, gang=gang)
        self.room.owners.take(line.queue.owner, signature, done)
        self.budget -= done
        line.tasks -= done
        return done

    def _note(self, head: Group, line: Line, signature: Signature, reason: str) -> None:
        if len(self.waiting) < _MOST_NOTED:
            targets, nearest = tally(self.room, signature)
            self.waiting.append(
                WaitingGroup(
                    order=head.order, job=head.job, tasks=line.tasks, reason=reason, targets=targets, nearest=nearest
                )
            )

    def _look_ahead(self, line: Line, reason: str) -> None:
        """Keeps room for what does not fit yet, and makes it for what may displace others."""
        signature = line.queue.signature
        if reason not in reserving.HELPED:
            return
        if signature.preempts and self._displace(line):
            return
        if self.reservations > 0:
            self.reservations -= reserving.keep_room(self.room, signature)

    def _displace(self, line: Line) -> bool:
        """Stops lower work for as many tasks of the line as that helps; whether it helps any."""
        for done in range(min(line.tasks, _MOST_DISPLACING)):
            evicted = preempting.make_room(self.room, line.queue.signature, line.queue.priority, self.soon)
            if evicted is None:
                return done > 0
            self.evictions.extend(evicted)
        return True


def _first_left(run: list[tuple[Group, int]], done: int) -> Group:
    """The group of the first task that was not placed."""
    for group, count in run:
        done -= count
        if done < 0:
            return group
    return run[-1][0]


def _handed_out(run: list[tuple[Group, int]], laid: Laid, signature: Signature, *, gang: bool) -> Iterator[Batch]:
    """The places in their order, to the groups in theirs."""
    places = iter(zip(laid.rows, laid.counts, strict=True))
    left = laid.total
    row, free = 0, 0
    for group, wanted in run:
        rows: list[int] = []
        counts: list[int] = []
        missing = min(wanted, left)
        left -= missing
        while missing:
            if not free:
                row, free = next(places)
            some = min(missing, free)
            rows.append(row)
            counts.append(some)
            missing -= some
            free -= some
        if rows:
            yield Batch(group.order, group.job, signature, gang, rows, counts)
