"""The calculation engine: which waiting tasks go where, and why the rest waits.

Simple equivalent: take the waiting tasks in the order of service; give each the best target that no filter refuses, or
none; who does not fit but could once others end has room kept for it. This version serves runs of equal tasks at once,
and passes over what cannot fit any more, since room only shrinks within a cycle. Same input, same output.

An order that preempts has lower work stopped only if it gets the room: the same decision, made in a world without
that work, must place its tasks. An order for which that is not so stops nobody, and all is decided again without its
evictions.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice

import msgspec

from controlplane.engine import gangs, reserving, supposing, words
from controlplane.engine.kept import KeptRoom
from controlplane.engine.laying import Laid, place, place_hopeful
from controlplane.engine.preempting import Displacing, Eviction
from controlplane.engine.room import Room
from controlplane.engine.service import Group, Line, Queue, Service, Turn
from controlplane.engine.signature import Signature
from controlplane.engine.verdicts import reason_of, tally
from controlplane.engine.world import World
from controlplane.model.leadership import WaitingGroup

VERSION = "columns-5"
_MOST_NOTED = 16
# Of a line that may displace others, so many tasks are looked at.
_MOST_ORDERS = 1000
# For so many groups that do not fit a cycle looks for a target to keep: each look goes through all that runs.
_MOST_LOOKS = 64
# So often a cycle is decided again without the evictions of orders that would not get the room; then nobody is stopped.
_MOST_TRIES = 4


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
    """What was decided, in columns; `placements` is the same one by one. `kept` is the room that the cycle kept for
    who does not fit yet."""

    targets: list[str]
    batches: tuple[Batch, ...]
    considered: int
    refused: dict[str, int]
    evictions: tuple[Eviction, ...] = ()
    waiting: tuple[WaitingGroup, ...] = ()
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


# Told of a queue whose turn raised, which is then over.
Blame = Callable[[Queue, Exception], None]


def decide(world: World, queues: Iterable[Queue], blame: Blame | None = None) -> Decision:
    """With `blame`, a queue that raises does not end the decision, whose result then only says who is to blame."""
    queues = list(queues)
    if not any(queue.signature.preempts for queue in queues):
        return _Cycle(world, queues).run(blame).decision()
    queues = [replace(queue, groups=tuple(queue.groups)) for queue in queues]
    in_vain: frozenset[str] = frozenset()
    for _ in range(_MOST_TRIES):
        cycle = _Cycle(world, queues, may_displace=True, in_vain=in_vain).run(blame)
        now_in_vain = _in_vain(cycle)
        if not now_in_vain:
            return cycle.decision()
        in_vain |= now_in_vain
    return _Cycle(world, queues).run(blame).decision()


def _in_vain(cycle: _Cycle) -> frozenset[str]:
    """The orders that would not get the room that is made for them once all that is stopping is over."""
    displacing = cycle.displacing
    if not displacing.evictions:
        return frozenset()
    over = [
        one
        for row in cycle.world.targets
        for one in row.live.values()
        if one.want == "stop" or one.id in displacing.stopped
    ]
    then = _Cycle(supposing.after(cycle.world, removed=over), cycle.queues).run(None)
    placed, placed_then = cycle.placed(), then.placed()
    stopping_for = {eviction.by for eviction in displacing.evictions}
    return frozenset(
        order for order in stopping_for if placed_then[order] < placed[order] + displacing.promised.get(order, 0)
    )


@dataclass(slots=True)
class _Cycle:
    world: World
    queues: list[Queue]
    may_displace: bool = False
    in_vain: frozenset[str] = frozenset()
    room: Room = field(init=False)
    service: Service = field(init=False)
    budget: int = field(init=False)
    batches: list[Batch] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    stuck: dict[Signature, str] = field(default_factory=dict)
    waiting: list[WaitingGroup] = field(default_factory=list)
    reservations: int = field(init=False)
    looks: int = _MOST_LOOKS
    displacing: Displacing = field(default_factory=Displacing)

    def __post_init__(self) -> None:
        self.room = Room(self.world)
        self.service = Service(self.queues, self.room.owners)
        self.budget = self.world.settings.cycle_budget
        # Room that is kept is room that is not used: never more than a part of it.
        self.reservations = min(self.world.settings.reservations, 1 + len(self.world.targets) // 4)

    def run(self, blame: Blame | None) -> _Cycle:
        while self.budget > 0 and (turn := self.service.next()) is not None:
            serve = self.serve_gang if turn.line.queue.parts else self.serve
            try:
                stuck = serve(turn)
            except Exception as error:
                if blame is None:
                    raise
                blame(turn.line.queue, error)
                stuck = True
            self.service.done(turn, stuck=stuck)
        for line in self.service.waiting():
            self.refused[words.QUEUED] += line.tasks
        return self

    def decision(self) -> Decision:
        return Decision(
            targets=self.world.floor.names,
            batches=tuple(self.batches),
            considered=sum(queue.tasks for queue in self.queues),
            refused={reason: count for reason, count in self.refused.items() if count},
            evictions=tuple(self.displacing.evictions),
            waiting=tuple(self.waiting),
            kept=self.room.kept,
        )

    def placed(self) -> Counter[str]:
        """How many tasks of each order were placed."""
        found: Counter[str] = Counter()
        for batch in self.batches:
            found[batch.order] += sum(batch.counts)
        return found

    def serve(self, turn: Turn) -> bool:
        """Places what it may of the line; True when nothing more of it fits."""
        line = turn.line
        signature, owner = line.queue.signature, line.queue.owner
        if (known := self.stuck.get(signature)) is not None:
            self.refused[known] += line.tasks
            return True
        hopeless = self.room.hopeless(signature)
        run = line.run(1 if hopeless else min(turn.most, self.budget), turn.before)
        wanted = run[0][1] if len(run) == 1 else sum(count for _, count in run)
        allowed = 0 if hopeless else min(wanted, self.room.owners.allowance(owner, signature))
        laid = place_hopeful(self.room, signature, allowed)
        done = self._book(run, laid, signature, line)
        if done == wanted:
            return False
        reason = reason_of(self.room, signature, owner)
        self.refused[reason] += line.tasks
        self._note(_first_left(run, done), line, signature, reason)
        if reason != words.QUOTA and not signature.affinity:
            # Its owner's quota apart, and company that may still come, what does not fit now fits nobody later.
            self.stuck[signature] = reason
        if reason in reserving.HELPED:
            self._look_ahead(line, _left(run, done, line))
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
        if reason == words.GANG:
            self._look_ahead_for_gang(line, parts)
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

    def _look_ahead(self, line: Line, orders: Iterator[str]) -> None:
        """Makes room for tasks that may displace others, or keeps it for what does not fit yet. The orders are those of
        the line's tasks that were not placed, one by one."""
        signature = line.queue.signature
        if self.may_displace and signature.preempts:
            most = min(line.tasks, self.room.owners.allowance(line.queue.owner, signature))
            waiting = list(islice(orders, _MOST_ORDERS))
            allowed = (order for order in waiting if order not in self.in_vain)
            if self.displacing.make_room(self.room, line.queue, allowed, most):
                return
            orders = iter(waiting)
        if self.reservations > 0 and self.looks > 0:
            self.looks -= 1
            most = min(line.tasks, max(1, self.reservations // 2))
            self.reservations -= reserving.keep_room(self.room, signature, orders, most)

    def _look_ahead_for_gang(self, line: Line, parts: gangs.Parts) -> None:
        """The same for all of a gang."""
        order = parts[0][1].order
        may = self.may_displace and parts[0][0].preempts and order not in self.in_vain
        if may and self.displacing.make_room_for_gang(self.room, line.queue, parts):
            return
        if self.reservations > 0 and self.looks > 0:
            self.looks -= 1
            self.reservations -= gangs.keep_room(self.room, parts)


def _left(run: list[tuple[Group, int]], done: int, line: Line) -> Iterator[str]:
    """The orders of the tasks that were not placed, first those of the run, then the others of the line."""
    placed = done
    for group, count in run:
        some = min(placed, count)
        placed -= some
        yield from [group.order] * (count - some)
    if line.left:
        yield from [line.head.order] * line.left
    yield from chain.from_iterable([group.order] * group.count for group in line.rest)


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
