"""Forecast: cycles of the future, from the time limits of what runs and of what they would place.

What has no time limit never ends here, so a forecast promises nothing that it cannot know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from immutables import Map

from controlplane.cache.target_ledger import kind_of
from controlplane.engine import reserving
from controlplane.engine.decide import Decision, Placement, decide
from controlplane.engine.service import Group, Queue
from controlplane.engine.signature import Signature
from controlplane.engine.world import TargetRow, World
from controlplane.model import times
from controlplane.model.explanation import PlannedPlacement
from controlplane.model.fulfilment import Claim, Fulfilment, TaskRef, TaskSpec, Traits
from controlplane.model.packing import sizes, together
from controlplane.model.quantity import Number, whole

# A person asks and waits: after so many steps into the future the answer is that nobody knows.
_MOST_STEPS = 200
_INSTANT = 0.001


@dataclass(slots=True)
class _Waiting:
    queue: Queue
    groups: list[Group]


class Forecast:
    def __init__(self, world: World, queues: list[Queue], order: str) -> None:
        self._world = world
        self._start = world.now
        self._waiting = [_Waiting(queue, list(queue.groups)) for queue in queues]
        self._order = order
        self._made = 0

    def placements(self) -> Iterator[PlannedPlacement]:
        """Where and when the order's tasks would go, in order of time."""
        for _ in range(_MOST_STEPS):
            decision = decide(self._world, self._queues())
            for placement in decision.placements:
                if placement.order == self._order:
                    yield self._planned(placement)
            self._settle(decision)
            if not any(group.order == self._order for line in self._waiting for group in line.groups):
                return
            if not self._pass_time():
                return

    def _planned(self, placement: Placement) -> PlannedPlacement:
        seconds = (self._world.now - self._start).total_seconds()
        return PlannedPlacement(
            job=placement.job,
            count=placement.count,
            target=placement.target,
            start_in_seconds=whole(round(seconds, 3)),
        )

    def _queues(self) -> list[Queue]:
        return [
            replace(line.queue, groups=tuple(line.groups), tasks=sum(group.count for group in line.groups))
            for line in self._waiting
            if line.groups
        ]

    def _settle(self, decision: Decision) -> None:
        """What was placed runs from now on and waits no more."""
        taken: Counter[tuple[str, str, Signature]] = Counter()
        rows = {row.name: row for row in self._world.targets}
        held = dict(self._world.held)
        for placement in decision.placements:
            taken[placement.order, placement.job, placement.signature] += placement.count
            made = [self._fulfilment(placement, count) for count in sizes(placement.count, placement.signature.pack)]
            rows[placement.target] = _with(rows[placement.target], made)
            for one in made:
                held.update((name, _claim(one, name)) for name in one.holds)
        for line in self._waiting:
            parts = line.queue.parts or [line.queue.signature] * len(line.groups)
            line.groups = [
                replace(group, count=left)
                for group, signature in zip(line.groups, parts, strict=False)
                if (left := group.count - taken[group.order, group.job, signature]) > 0
            ]
        self._world = replace(self._world, targets=tuple(rows.values()), held=held)

    def _fulfilment(self, placement: Placement, count: int) -> Fulfilment:
        self._made += 1
        signature = placement.signature
        kind = signature.kind
        return Fulfilment(
            id=f"supposed-{self._made}",
            epoch=0,
            cycle=0,
            order=placement.order,
            target=placement.target,
            tasks=tuple(TaskRef(job=placement.job, index=at, attempt=1) for at in range(count)),
            jobs={placement.job: TaskSpec(time_limit=self._time_limit(placement))},
            requests=together(signature.requests, count),
            holds=signature.unique,
            traits=Traits(
                labels=dict(kind.labels),
                class_=kind.class_,
                exclusive=kind.exclusive,
                anti_affinity=kind.anti_affinity,
            ),
            created=times.show(self._world.now),
        )

    def _time_limit(self, placement: Placement) -> Number | None:
        if placement.signature.time_limit is not None:
            return placement.signature.time_limit
        row = self._world.floor.row(placement.target)
        return self._world.targets[row].default_time_limit if row is not None else None

    def _pass_time(self) -> bool:
        """Lets the next that ends end, and all that end with it; False when nothing is sure to."""
        ends = [
            (when, row.name, one)
            for row in self._world.targets
            for when, one in reserving.ends(row.live.values(), self._world.now)
        ]
        if not ends:
            return False
        first = min(when for when, _, _ in ends)
        over: dict[str, list[Fulfilment]] = {}
        held = dict(self._world.held)
        for when, name, one in ends:
            if when <= first + _INSTANT:
                over.setdefault(name, []).append(one)
                for resource in one.holds:
                    held.pop(resource, None)
        rows = tuple(_without(row, over.get(row.name, [])) for row in self._world.targets)
        now = self._world.now + timedelta(seconds=first + _INSTANT)
        self._world = replace(self._world, now=now, targets=rows, held=held)
        return True


def _with(row: TargetRow, made: list[Fulfilment]) -> TargetRow:
    return _moved(row, row.live.update({one.id: one for one in made}), made, 1)


def _without(row: TargetRow, over: list[Fulfilment]) -> TargetRow:
    if not over:
        return row
    live = row.live
    for one in over:
        live = live.delete(one.id)
    return _moved(row, live, over, -1)


def _moved(row: TargetRow, live: Map[str, Fulfilment], some: list[Fulfilment], sign: int) -> TargetRow:
    """The target with these more or fewer on it."""
    free: dict[str, Number] = dict(row.free)
    kinds = Counter(row.kinds)
    for one in some:
        kinds[kind_of(one.traits)] += sign * len(one.tasks)
        for name, amount in one.requests.items():
            if name in free:
                free[name] = whole(round(free[name] - sign * amount, 9))
    return replace(
        row,
        live=live,
        free=free,
        kinds={kind: count for kind, count in kinds.items() if count > 0},
        slots=None if row.slots is None else row.slots - sign * len(some),
    )


def _claim(one: Fulfilment, resource: str) -> Claim:
    return Claim(resource=resource, fulfilment=one.id, order=one.order, target=one.target, epoch=0)
