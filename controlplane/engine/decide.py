"""The calculation engine: which waiting tasks go where, and why the rest waits.

Simple equivalent: take the waiting tasks in the order of service; give each task the best target which no filter
refuses, or none; keep room for a task which does not fit now but could fit once other work ends. This version serves
runs of equal tasks at once, and skips signatures which cannot fit any more, since room only shrinks within a cycle.
Same input, same output.

An order which preempts stops lower work only if the order gets the room: the same decision, made in a world without
the stopped work, must place the tasks of the order. An order which fails this check stops no work, and the whole cycle
is decided again without the evictions of the order. Room made for a task by an earlier cycle goes to the task before
other work of the same priority (`made_room`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, repeat

import msgspec

from controlplane.engine import gangs, reason_codes, reserving, supposing
from controlplane.engine.decision import Batch, Decision
from controlplane.engine.filtering import ENDED_BY_OTHERS, reason_of, tally
from controlplane.engine.laying import Laid, place, place_hopeful
from controlplane.engine.made_room import MadeRoom
from controlplane.engine.preempting import Displacing, takes_there
from controlplane.engine.room import Room
from controlplane.engine.service import Group, Line, Queue, Service, Turn
from controlplane.engine.signature import Signature
from controlplane.engine.waiting import OrderJob
from controlplane.engine.world import World
from controlplane.model.leadership import WaitingGroup

VERSION = "columns-6"
_MOST_NOTED = 16
# At most so many tasks of a line are considered for displacing other work.
_MOST_ORDERS = 1000
# For at most so many groups which do not fit, a cycle looks for a target to keep: each look reads all running work.
_MOST_LOOKS = 64
# So often a cycle is decided again without the evictions of orders which would not get the room; after that, the cycle
# is decided without any eviction.
_MOST_TRIES = 4


# Called with a queue whose turn raised; the turn of the queue is then over.
Blame = Callable[[Queue, Exception], None]


def decide(world: World, queues: Iterable[Queue], blame: Blame | None = None) -> Decision:
    """With `blame`, a queue which raises is reported to `blame` and does not end the decision; after such a report only
    the report counts, not the decision."""
    queues = list(queues)
    if not world.made_rooms and not any(queue.signature.preempts for queue in queues):
        return _Cycle(world, queues).run(blame).decision()
    queues = [msgspec.structs.replace(queue, groups=tuple(queue.groups)) for queue in queues]
    in_vain: frozenset[str] = frozenset()
    for _ in range(_MOST_TRIES):
        cycle = _Cycle(world, queues, may_displace=True, in_vain=in_vain).run(blame)
        now_in_vain = _in_vain(cycle)
        if not now_in_vain:
            return cycle.decision()
        in_vain |= now_in_vain
    return _Cycle(world, queues).run(blame).decision()


def _in_vain(cycle: _Cycle) -> frozenset[str]:
    """The orders which would not get the room made for them, once all stopping work has ended."""
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


@dataclass(frozen=True, slots=True)
class _Promised:
    """Made room, and the queue, signature and group of the waiting task for which the room was made."""

    made: MadeRoom
    queue: Queue
    signature: Signature
    group: Group


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
    # Served from the end, so the lowest priority stands first; within a priority the youngest room stands first.
    promised: list[_Promised] = field(default_factory=list)
    used_rooms: list[MadeRoom] = field(default_factory=list)
    # How many tasks of each job went to room made for them by an earlier cycle.
    taken: Counter[OrderJob] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.room = Room(self.world)
        self.service = Service(self.queues, self.room.owners)
        self.budget = self.world.settings.cycle_budget
        # Kept room stays unused, so at most about a quarter of the targets may be kept.
        self.reservations = min(self.world.settings.reservations, 1 + len(self.world.targets) // 4)
        if self.world.made_rooms:
            self.promised, self.used_rooms = _promised(self.world.made_rooms, self.queues)

    def run(self, blame: Blame | None) -> _Cycle:
        next_turn = partial(self._next_turn, blame) if self.promised else self.service.next
        while self.budget > 0 and (turn := next_turn()) is not None:
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
            self.refused[reason_codes.QUEUED] += line.tasks
        return self

    def _next_turn(self, blame: Blame | None) -> Turn | None:
        """The next turn, after all made room of the priority of the turn and above was used."""
        while self.promised and self.budget > 0:
            priority = self.service.priority()
            if priority is None or self.promised[-1].queue.priority < priority:
                break
            promised = self.promised.pop()
            try:
                self._use_made_room(promised)
            except Exception as error:
                if blame is None:
                    raise
                blame(promised.queue, error)
        return self.service.next() if self.budget > 0 else None

    def _use_made_room(self, promised: _Promised) -> None:
        """Places the task for which the room was made, or keeps the room until all stopped work has ended."""
        made, queue, signature, group = promised.made, promised.queue, promised.signature, promised.group
        row = self.world.floor.row(made.target)
        stopping = row is not None and any(victim in self.world.targets[row].live for victim in made.stopped)
        if not stopping:
            self.used_rooms.append(made)
        if queue.parts:
            self._serve_gang_first(queue, group)
        elif row is None or self._is_spoken_for(group):
            return
        elif takes_there(self.room, queue.owner, signature, row):
            line = self.service.take_out(queue, group.order, group.job)
            if line is not None:
                self.room.take_one(signature, row)
                self._book([(group, 1)], Laid([row], [1], 1), signature, line)
                self.taken[group.order, group.job] += 1
        elif stopping:
            self.displacing.hold(self.room, queue.owner, signature, (group.order, group.job), row)

    def _is_spoken_for(self, group: Group) -> bool:
        """Whether every waiting task of the group already took or holds room made by an earlier cycle."""
        task = (group.order, group.job)
        return self.taken[task] + self.displacing.held[task] >= group.count

    def _serve_gang_first(self, queue: Queue, group: Group) -> None:
        line = self.service.take_out(queue, group.order, group.job)
        if line is None:
            return
        stuck = self.serve_gang(Turn(line, line.tasks, None))
        if not stuck and line.left:
            self.refused[reason_codes.QUEUED] += line.tasks

    def decision(self) -> Decision:
        return Decision(
            targets=self.world.floor.names,
            batches=tuple(self.batches),
            considered=sum(queue.tasks for queue in self.queues),
            refused={reason: count for reason, count in self.refused.items() if count},
            evictions=tuple(self.displacing.evictions),
            waiting=tuple(self.waiting),
            used_rooms=tuple(self.used_rooms),
            kept=self.room.kept,
        )

    def placed(self) -> Counter[str]:
        """How many tasks of each order were placed."""
        found: Counter[str] = Counter()
        for batch in self.batches:
            found[batch.order] += sum(batch.counts)
        return found

    def serve(self, turn: Turn) -> bool:
        """Places as many tasks of the line as the turn allows; True when no further task of the line fits."""
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
        if reason != reason_codes.QUOTA and not signature.affinity:
            # Capacity only shrinks within a cycle, so this signature cannot fit again, unless the owner's quota or
            # missing affinity refused it.
            self.stuck[signature] = reason
        if reason in ENDED_BY_OTHERS:
            self._look_ahead(line, _left(run, done, line))
        return True

    def serve_gang(self, turn: Turn) -> bool:
        """Places all groups of the gang or none of them; True when the gang does not fit."""
        line = turn.line
        if line.tasks > self.budget and self.batches:
            # The gang waits for a cycle with the whole budget: there the gang is placed first.
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
        if reason == reason_codes.GANG:
            self._look_ahead_for_gang(line, parts)
        return True

    def _book(
        self, run: list[tuple[Group, int]], laid: Laid, signature: Signature, line: Line, *, gang: bool = False
    ) -> int:
        """Records the placed tasks as batches, in the order of the groups; the number of placed tasks."""
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

    def _look_ahead(self, line: Line, tasks: Iterator[Group]) -> None:
        """Makes room for tasks which may displace other work, or keeps room for tasks which do not fit yet. `tasks` are
        the tasks of the line left unplaced, each given as the group of the task."""
        signature = line.queue.signature
        if self.displacing.held:
            tasks = self._not_held(tasks)
        if signature.preempts:
            waiting = list(islice(tasks, _MOST_ORDERS))
            if not waiting:
                return
            if self.may_displace:
                most = min(line.tasks, self.room.owners.allowance(line.queue.owner, signature))
                allowed = (group for group in waiting if group.order not in self.in_vain)
                if self.displacing.make_room(self.room, line.queue, allowed, most):
                    return
            tasks = iter(waiting)
        if self.reservations > 0 and self.looks > 0:
            self.looks -= 1
            most = min(line.tasks, max(1, self.reservations // 2))
            self.reservations -= reserving.keep_room(self.room, signature, (group.order for group in tasks), most)

    def _not_held(self, tasks: Iterator[Group]) -> Iterator[Group]:
        """The tasks for which no earlier cycle made room."""
        held = Counter(self.displacing.held)
        for group in tasks:
            task = (group.order, group.job)
            if held[task] > 0:
                held[task] -= 1
            else:
                yield group

    def _look_ahead_for_gang(self, line: Line, parts: gangs.Parts) -> None:
        """Like `_look_ahead`, for all tasks of a gang together."""
        order = parts[0][1].order
        may = self.may_displace and parts[0][0].preempts and order not in self.in_vain
        if may and self.displacing.make_room_for_gang(self.room, line.queue, parts):
            return
        if self.reservations > 0 and self.looks > 0:
            self.looks -= 1
            self.reservations -= gangs.keep_room(self.room, parts)


def _promised(rooms: Iterable[MadeRoom], queues: Iterable[Queue]) -> tuple[list[_Promised], list[MadeRoom]]:
    """The made rooms for which a task waits, sorted so that `_Cycle` serves them from the end, and the made rooms for
    which no task waits any more."""
    rooms = tuple(rooms)
    wanted = {(made.order, made.job) for made in rooms}
    waiting: dict[OrderJob, tuple[Queue, Signature, Group]] = {}
    for queue in queues:
        if queue.signature.preempts:
            parts = queue.parts or repeat(queue.signature)
            for group, signature in zip(queue.groups, parts, strict=False):
                if (group.order, group.job) in wanted:
                    waiting.setdefault((group.order, group.job), (queue, signature, group))
    found = [_Promised(made, *waiting[made.order, made.job]) for made in rooms if (made.order, made.job) in waiting]
    found.reverse()
    found.sort(key=lambda promised: promised.queue.priority)
    return found, [made for made in rooms if (made.order, made.job) not in waiting]


def _left(run: list[tuple[Group, int]], done: int, line: Line) -> Iterator[Group]:
    """The unplaced tasks, each given as the group of the task: first tasks of the run, then the rest of the line."""
    placed = done
    for group, count in run:
        some = min(placed, count)
        placed -= some
        yield from [group] * (count - some)
    if line.left:
        yield from [line.head] * line.left
    yield from chain.from_iterable([group] * group.count for group in line.rest)


def _first_left(run: list[tuple[Group, int]], done: int) -> Group:
    """The group of the first unplaced task."""
    for group, count in run:
        done -= count
        if done < 0:
            return group
    return run[-1][0]


def _handed_out(run: list[tuple[Group, int]], laid: Laid, signature: Signature, *, gang: bool) -> Iterator[Batch]:
    """Hands the laid places, in their order, to the groups of the run, in the order of the groups."""
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
