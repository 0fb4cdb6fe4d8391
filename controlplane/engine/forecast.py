"""Forecast: cycles of the future, from the time limits of running work and of the work these cycles would place.

Work without a time limit never ends in a forecast, so a forecast promises only known ends. All inputs of a cycle are
carried along with time: room, shares and quotas of owners, limits of rules, unique resources, tasks which keep apart,
tasks which become ready at a known moment or when other jobs are done, deadlines which can no longer be met. Preempted
work stops at once in a forecast, and waits again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from controlplane.engine import supposing
from controlplane.engine.decide import decide
from controlplane.engine.decision import Decision, Placement
from controlplane.engine.ends import Ends
from controlplane.engine.made_room import rooms_of
from controlplane.engine.preempting import Eviction
from controlplane.engine.service import Queue
from controlplane.engine.signature import Signature
from controlplane.engine.waiting import OrderJob, Successors, Waiting, waiting_in
from controlplane.engine.world import World
from controlplane.model import times, windows
from controlplane.model.explanation import PlannedPlacement
from controlplane.model.failure import MOVED, PREEMPTED
from controlplane.model.fulfilment import Fulfilment, TaskRef, TaskSpec, Traits
from controlplane.model.packing import sizes, together
from controlplane.model.quantity import Number, whole

# A person waits for the forecast: after so many steps into the future, the remaining tasks count as not placeable.
_MOST_STEPS = 200
# Moments are written in milliseconds, and a cycle is decided at such a moment.
_MILLISECONDS = 1000
_ROUNDING_SECONDS = 1e-6
# Prefix of the identities of fulfilments made up by a forecast.
SUPPOSED = "supposed-"
# Reasons for a stop after which the tasks of the fulfilment wait again.
_AGAIN = frozenset({PREEMPTED, MOVED})


@dataclass(slots=True)
class Known:
    """The input of a forecast beside the world. Tasks in `coming` become ready after so many seconds, tasks in
    `successors` when other jobs are done; `latest` is the last moment at which tasks of a job may begin, for jobs with
    a deadline; `limits` names, by fulfilment, the rules which count the fulfilment; `of` gives the tasks of a stopped
    fulfilment as they wait again.
    """

    coming: Sequence[tuple[float, Waiting]] = ()
    successors: Successors = field(default_factory=Successors)
    latest: Mapping[OrderJob, str] = field(default_factory=dict)
    limits: Mapping[str, Sequence[str]] = field(default_factory=dict)
    of: Callable[[Fulfilment], Iterable[Waiting]] = lambda _: ()


class Forecast:
    def __init__(self, world: World, queues: Iterable[Queue], order: str, known: Known | None = None) -> None:
        self._world = world
        self._start = world.now
        self._known = known or Known()
        self._waiting: dict[tuple[object, ...], Waiting] = {}
        self._coming = [(seconds, at, tasks) for at, (seconds, tasks) in enumerate(self._known.coming) if seconds > 0]
        heapq.heapify(self._coming)
        for tasks in (*waiting_in(queues), *(tasks for seconds, tasks in self._known.coming if seconds <= 0)):
            self._wait(tasks)
        self._limits = dict(self._known.limits)
        self._supposed: dict[str, Waiting] = {}
        self._order = order
        self.evictions: list[Eviction] = []

    def placements(self) -> Iterator[PlannedPlacement]:
        """Where and when the order's tasks would go, in order of time. At each moment, cycles are repeated until a
        cycle places no task, since the scheduler is woken by placements of its own."""
        steps = 0
        while steps < _MOST_STEPS:
            decision = decide(self._world, self._queues())
            for placement in decision.placements:
                if placement.order == self._order:
                    yield self._planned(placement)
            self._settle(decision)
            if not self._left():
                return
            stopped = self._stop(decision.evictions)
            if not stopped and decision.batches:
                continue
            if not stopped and not self._pass_time():
                return
            steps += 1

    def _left(self) -> bool:
        """Whether any task of the order waits, or will wait later."""
        if self._order in self._known.successors:
            return True
        coming = (tasks for _, _, tasks in self._coming)
        return any(tasks.group.order == self._order for tasks in (*self._waiting.values(), *coming))

    def _planned(self, placement: Placement) -> PlannedPlacement:
        return PlannedPlacement(
            job=placement.job,
            count=placement.count,
            target=placement.target,
            start_in_seconds=whole(round(self._seconds(), 3)),
        )

    def _seconds(self) -> float:
        return (self._world.now - self._start).total_seconds()

    def _wait(self, tasks: Waiting) -> None:
        key = (*tasks.line, tasks.signature, tasks.group.rank, tasks.group.job)
        before = self._waiting.get(key)
        count = tasks.group.count + (before.group.count if before is not None else 0)
        self._waiting[key] = tasks.counting(count)

    def _queues(self) -> list[Queue]:
        lines: dict[tuple[object, ...], list[Waiting]] = {}
        for tasks in self._waiting.values():
            lines.setdefault(tasks.line, []).append(tasks)
        queues = []
        for members in lines.values():
            members.sort(key=lambda tasks: tasks.group.rank)
            first = members[0]
            queues.append(
                Queue(
                    priority=first.priority,
                    owner=first.owner,
                    signature=first.signature,
                    groups=tuple(tasks.group for tasks in members),
                    tasks=sum(tasks.group.count for tasks in members),
                    parts=tuple(tasks.signature for tasks in members) if first.gang else (),
                )
            )
        return queues

    def _settle(self, decision: Decision) -> None:
        """Turns the placed tasks from waiting into running."""
        members: dict[tuple[str, str, Signature], list[tuple[object, ...]]] = {}
        for key, tasks in self._waiting.items():
            members.setdefault((tasks.group.order, tasks.group.job, tasks.signature), []).append(key)
        added: list[Fulfilment] = []
        apart: list[str] = []
        for placement in decision.placements:
            tasks = self._take(members[placement.order, placement.job, placement.signature], placement.count)
            for count in sizes(placement.count, placement.signature.pack):
                fulfilment = self._fulfilment(placement, count, tasks)
                added.append(fulfilment)
                if placement.signature.spread:
                    apart.append(fulfilment.id)
        left = tuple(room for room in self._world.made_rooms if room not in decision.used_rooms)
        world = replace(self._world, made_rooms=left)
        self._world = supposing.after(world, added=added, limits=self._limits, apart=apart)

    def _take(self, keys: list[tuple[object, ...]], count: int) -> Waiting:
        """Takes `count` tasks off the waiting tasks at these keys; returns a sample, for when the tasks wait again."""
        sample: Waiting | None = None
        for key in keys:
            tasks = self._waiting.get(key)
            if tasks is None or not count:
                continue
            sample = sample or tasks
            some = min(count, tasks.group.count)
            count -= some
            if some == tasks.group.count:
                del self._waiting[key]
            else:
                self._waiting[key] = tasks.counting(tasks.group.count - some)
        assert sample is not None
        return sample

    def _fulfilment(self, placement: Placement, count: int, of: Waiting) -> Fulfilment:
        signature, kind = placement.signature, placement.signature.kind
        identity = f"{SUPPOSED}{len(self._supposed) + 1}"
        self._supposed[identity] = of.counting(count)
        self._limits[identity] = self._counted(placement) * count
        return Fulfilment(
            id=identity,
            epoch=0,
            cycle=0,
            order=placement.order,
            target=placement.target,
            tasks=tuple(TaskRef(job=placement.job, index=at, attempt=1) for at in range(count)),
            jobs={placement.job: TaskSpec(time_limit=self._time_limit(placement))},
            requests=together(signature.requests, count),
            holds=signature.unique,
            owner=of.owner,
            traits=Traits(
                labels=dict(kind.labels),
                class_=kind.class_,
                exclusive=kind.exclusive,
                preemptible=signature.preemptible,
                anti_affinity=kind.anti_affinity,
            ),
            created=times.show(self._world.now),
        )

    def _counted(self, placement: Placement) -> list[str]:
        """The limiting rules which count a task on the target of the placement."""
        world, row = self._world, self._world.floor.row(placement.target)
        if not world.book.limits or row is None:
            return []
        ruling = world.book.rule(placement.signature.facts, world.floor.targets, world.now)
        return [limit.name for limit in ruling.limits if limit.mask[row]]

    def _time_limit(self, placement: Placement) -> Number | None:
        if placement.signature.time_limit is not None:
            return placement.signature.time_limit
        row = self._world.floor.row(placement.target)
        return self._world.targets[row].default_time_limit if row is not None else None

    def _stop(self, evictions: Sequence[Eviction]) -> bool:
        """Lets preempted fulfilments stop, and their tasks wait again; whether any fulfilment was stopped."""
        self.evictions.extend(eviction for eviction in evictions if eviction.by == self._order)
        stopped = {eviction.fulfilment for eviction in evictions}
        live = (fulfilment for row in self._world.targets for fulfilment in row.live.values())
        gone = [fulfilment for fulfilment in live if fulfilment.id in stopped]
        for fulfilment in gone:
            supposed = self._supposed.get(fulfilment.id)
            for again in [supposed] if supposed is not None else self._known.of(fulfilment):
                self._wait(again)
        rooms = rooms_of(eviction.on_record(epoch=0, cycle=0) for eviction in evictions)
        world = replace(self._world, made_rooms=(*self._world.made_rooms, *rooms))
        self._world = supposing.after(world, removed=gone, limits=self._limits)
        return bool(gone)

    def _pass_time(self) -> bool:
        """Goes on to the next moment at which a fulfilment ends, a task becomes ready, a window opens or a deadline
        passes; False when there is no such moment."""
        world = self._world
        ends = Ends([row.ends for row in world.targets], world.now)
        passed = self._seconds()
        moments = [float(ends.when.min())] if len(ends.when) else []
        moments += [self._coming[0][0] - passed] if self._coming else []
        moments += (*self._openings(), *self._too_late())
        first = min((moment for moment in moments if moment != float("inf")), default=None)
        if first is None:
            return False
        first = math.ceil(max(0.0, first - _ROUNDING_SECONDS) * _MILLISECONDS) / _MILLISECONDS
        over = [ends.fulfilments[at] for at in (ends.when <= first + _ROUNDING_SECONDS).nonzero()[0].tolist()]
        while self._coming and self._coming[0][0] <= passed + first + _ROUNDING_SECONDS:
            self._wait(heapq.heappop(self._coming)[2])
        for tasks in self._following(over):
            self._wait(tasks)
        now = world.now + timedelta(seconds=first)
        self._world = replace(supposing.after(world, removed=over, limits=self._limits), now=now)
        self._expire()
        return True

    def _following(self, over: Sequence[Fulfilment]) -> Iterator[Waiting]:
        """The tasks which wait once these fulfilments are over: tasks of succeeding jobs, and the tasks of fulfilments
        stopped by preemption or a move."""
        for fulfilment in over:
            if fulfilment.want == "stop" and fulfilment.reason in _AGAIN:
                yield from self._known.of(fulfilment)
        yield from self._known.successors.after(fulfilment for fulfilment in over if fulfilment.want != "stop")

    def _expire(self) -> None:
        """Removes waiting tasks which can no longer meet their deadline."""
        if self._known.latest:
            now = times.show(self._world.now)
            late = [key for key, tasks in self._waiting.items() if "" != self._latest(tasks) < now]
            for key in late:
                del self._waiting[key]

    def _latest(self, tasks: Waiting) -> str:
        return self._known.latest.get((tasks.group.order, tasks.group.job), "")

    def _too_late(self) -> list[float]:
        """In how many seconds waiting tasks can no longer meet their deadlines."""
        if not self._known.latest:
            return []
        latest = {self._latest(tasks) for tasks in self._waiting.values()} - {""}
        return [
            (times.parse(start, "deadline") - self._world.now).total_seconds() + 1 / _MILLISECONDS for start in latest
        ]

    def _openings(self) -> list[float]:
        now = self._world.now
        kinds = {row.windows for row in self._world.targets if row.windows}
        opens = (windows.next_opening(kind, now) for kind in kinds if not windows.is_open(kind, now))
        return [(moment - now).total_seconds() for moment in opens if moment is not None]
