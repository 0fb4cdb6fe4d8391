"""Forecast: cycles of the future, from the time limits of what runs and of what they would place.

What has no time limit never ends here, so a forecast promises nothing that it cannot know. Everything that a cycle
reads goes along with time: room, shares and quotas of owners, limits of rules, unique resources, tasks that keep
apart, tasks that become ready at a known moment or when other jobs are done, deadlines that can no longer be made. Work
that is preempted stops at once here, and waits again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from controlplane.engine import supposing
from controlplane.engine.decide import Decision, Placement, decide
from controlplane.engine.ends import Ends
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

# A person asks and waits: after so many steps into the future the answer is that nobody knows.
_MOST_STEPS = 200
# Moments are written in milliseconds, and a cycle is decided at such a moment.
_MILLISECONDS = 1000
_ROUNDING_SECONDS = 1e-6
# How the identities of fulfilments begin that a forecast made up.
SUPPOSED = "supposed-"
# Why fulfilments are stopped whose tasks then wait again.
_AGAIN = frozenset({PREEMPTED, MOVED})


@dataclass(slots=True)
class Known:
    """What a forecast has to know beside the world. `coming` becomes ready after so many seconds, `successors` when
    other jobs are done; `latest` is the last moment at which tasks of a job may begin, where there is one; `limits`
    names the rules that count a fulfilment; `of` tells what a fulfilment becomes when it is stopped and waits again.
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
        self._coming = [(seconds, at, one) for at, (seconds, one) in enumerate(self._known.coming) if seconds > 0]
        heapq.heapify(self._coming)
        for one in (*waiting_in(queues), *(one for seconds, one in self._known.coming if seconds <= 0)):
            self._wait(one)
        self._limits = dict(self._known.limits)
        self._supposed: dict[str, Waiting] = {}
        self._order = order
        self.evictions: list[Eviction] = []

    def placements(self) -> Iterator[PlannedPlacement]:
        """Where and when the order's tasks would go, in order of time. At one moment there are cycles until one places
        nothing, since the scheduler is woken by what it placed itself."""
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
        """Whether anything of the order waits, or will."""
        if self._order in self._known.successors:
            return True
        coming = (one for _, _, one in self._coming)
        return any(one.group.order == self._order for one in (*self._waiting.values(), *coming))

    def _planned(self, placement: Placement) -> PlannedPlacement:
        return PlannedPlacement(
            job=placement.job,
            count=placement.count,
            target=placement.target,
            start_in_seconds=whole(round(self._seconds(), 3)),
        )

    def _seconds(self) -> float:
        return (self._world.now - self._start).total_seconds()

    def _wait(self, one: Waiting) -> None:
        key = (*one.line, one.signature, one.group.rank, one.group.job)
        known = self._waiting.get(key)
        count = one.group.count + (known.group.count if known is not None else 0)
        self._waiting[key] = replace(one, group=replace(one.group, count=count))

    def _queues(self) -> list[Queue]:
        lines: dict[tuple[object, ...], list[Waiting]] = {}
        for one in self._waiting.values():
            lines.setdefault(one.line, []).append(one)
        found = []
        for members in lines.values():
            members.sort(key=lambda one: one.group.rank)
            first = members[0]
            found.append(
                Queue(
                    priority=first.priority,
                    owner=first.owner,
                    signature=first.signature,
                    groups=tuple(one.group for one in members),
                    tasks=sum(one.group.count for one in members),
                    parts=tuple(one.signature for one in members) if first.gang else (),
                )
            )
        return found

    def _settle(self, decision: Decision) -> None:
        """What was placed runs from now on and waits no more."""
        members: dict[tuple[str, str, Signature], list[tuple[object, ...]]] = {}
        for key, one in self._waiting.items():
            members.setdefault((one.group.order, one.group.job, one.signature), []).append(key)
        added: list[Fulfilment] = []
        apart: list[str] = []
        for placement in decision.placements:
            one = self._take(members[placement.order, placement.job, placement.signature], placement.count)
            for count in sizes(placement.count, placement.signature.pack):
                fulfilment = self._fulfilment(placement, count, one)
                added.append(fulfilment)
                if placement.signature.spread:
                    apart.append(fulfilment.id)
        self._world = supposing.after(self._world, added=added, limits=self._limits, apart=apart)

    def _take(self, keys: list[tuple[object, ...]], count: int) -> Waiting:
        """These many wait no more; one of them, for when they have to wait again."""
        found: Waiting | None = None
        for key in keys:
            one = self._waiting.get(key)
            if one is None or not count:
                continue
            found = found or one
            some = min(count, one.group.count)
            count -= some
            if some == one.group.count:
                del self._waiting[key]
            else:
                self._waiting[key] = replace(one, group=replace(one.group, count=one.group.count - some))
        assert found is not None
        return found

    def _fulfilment(self, placement: Placement, count: int, of: Waiting) -> Fulfilment:
        signature, kind = placement.signature, placement.signature.kind
        identity = f"{SUPPOSED}{len(self._supposed) + 1}"
        self._supposed[identity] = replace(of, group=replace(of.group, count=count))
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
        """The rules that limit and count a task there."""
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
        """Lets what is preempted stop, and wait again; whether there was any."""
        self.evictions.extend(one for one in evictions if one.by == self._order)
        stopped = {one.fulfilment for one in evictions}
        live = (one for row in self._world.targets for one in row.live.values())
        gone = [one for one in live if one.id in stopped]
        for one in gone:
            supposed = self._supposed.get(one.id)
            for again in [supposed] if supposed is not None else self._known.of(one):
                self._wait(again)
        self._world = supposing.after(self._world, removed=gone, limits=self._limits)
        return bool(gone)

    def _pass_time(self) -> bool:
        """Goes on to the next moment at which something ends, becomes ready, opens or is too late; False when there is
        none."""
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
        for one in self._following(over):
            self._wait(one)
        now = world.now + timedelta(seconds=first)
        self._world = replace(supposing.after(world, removed=over, limits=self._limits), now=now)
        self._expire()
        return True

    def _following(self, over: Sequence[Fulfilment]) -> Iterator[Waiting]:
        """What waits when these fulfilments are over: the jobs that come after theirs, and the tasks of those that were
        stopped for others."""
        for one in over:
            if one.want == "stop" and one.reason in _AGAIN:
                yield from self._known.of(one)
        yield from self._known.successors.after(one for one in over if one.want != "stop")

    def _expire(self) -> None:
        """What can no longer make its deadline waits no more."""
        if self._known.latest:
            now = times.show(self._world.now)
            late = [key for key, one in self._waiting.items() if "" != self._latest(one) < now]
            for key in late:
                del self._waiting[key]

    def _latest(self, one: Waiting) -> str:
        return self._known.latest.get((one.group.order, one.group.job), "")

    def _too_late(self) -> list[float]:
        """In how many seconds waiting tasks can no longer make their deadlines."""
        if not self._known.latest:
            return []
        latest = {self._latest(one) for one in self._waiting.values()} - {""}
        return [(times.parse(one, "deadline") - self._world.now).total_seconds() + 1 / _MILLISECONDS for one in latest]

    def _openings(self) -> list[float]:
        now = self._world.now
        kinds = {row.windows for row in self._world.targets if row.windows}
        opens = (windows.next_opening(kind, now) for kind in kinds if not windows.is_open(kind, now))
        return [(moment - now).total_seconds() for moment in opens if moment is not None]
