"""Guarding: decisions which survive an order or a target that makes the engine raise.

The normal case has no extra cost: a decision is made as always. Only when a decision raises, the causing orders and
targets are searched and put into the ward, and the decision is made again without them, from the beginning: no change
of the room by a failed attempt is left in the result. An error which remains whatever is left out is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from controlplane.engine.decide import decide
from controlplane.engine.decision import Decision
from controlplane.engine.room import Room
from controlplane.engine.service import Group, Queue
from controlplane.engine.target_columns import TargetColumns
from controlplane.engine.world import TargetRow, World
from controlplane.model.isolation import Ward

T = TypeVar("T")
# At most so many culprits are searched one by one; at the last of them, all items behind are left out too.
_MOST_CULPRITS = 16
_MOST_ROUNDS = 32


def culprits(items: Sequence[T], probe: Callable[[Sequence[T]], object]) -> Iterator[tuple[T, Exception]]:
    """The items without which the probe does not raise, each with the error raised.

    The first culprit is the last item of the shortest prefix which raises. The culprit is taken out, and so on.
    """
    left = list(items)
    for count in range(_MOST_CULPRITS):
        error = _raised(probe, left)
        if error is None:
            return
        good, bad = 0, len(left)
        while bad - good > 1:
            middle = (good + bad) // 2
            raised = _raised(probe, left[:middle])
            if raised is None:
                good = middle
            else:
                bad, error = middle, raised
        if not left:
            raise error
        last = count == _MOST_CULPRITS - 1
        blamed = left[bad - 1 :] if last else left[bad - 1 : bad]
        yield from ((item, error) for item in blamed)
        del left[bad - 1 : bad - 1 + len(blamed)]


def _raised(probe: Callable[[Sequence[T]], object], items: Sequence[T]) -> Exception | None:
    try:
        probe(items)
    except Exception as error:  # noqa: BLE001 - supervision: any error belongs to some item
        return error
    return None


def room_of(world: World, ward: Ward) -> Room:
    """The room of the world, without the targets which make the construction raise; `room.world` has the remaining
    targets."""
    try:
        return Room(world)
    except Exception:  # noqa: BLE001 - supervision
        bad = list(culprits(world.targets, lambda rows: Room(_with_targets(world, rows))))
    for row, error in bad:
        ward.failed("Target", row.name, error)
    names = {row.name for row, _ in bad}
    return Room(_with_targets(world, [row for row in world.targets if row.name not in names]))


def _with_targets(world: World, rows: Sequence[TargetRow]) -> World:
    return replace(world, targets=tuple(rows), floor=TargetColumns(tuple(row.facts for row in rows)))


def decide_guarded(world: World, queues: Callable[[], list[Queue]], ward: Ward) -> tuple[World, Decision]:
    """The decision, and the world of the decision: without the targets which make the decision raise."""
    try:
        return world, decide(world, queues())
    except Exception:  # noqa: BLE001 - supervision: the slow way finds the order or target at fault
        return _without_culprits(world, queues(), ward)


def _without_culprits(world: World, queues: list[Queue], ward: Ward) -> tuple[World, Decision]:
    world = room_of(world, ward).world
    left = [msgspec.structs.replace(queue, groups=tuple(queue.groups)) for queue in queues]
    for _ in range(_MOST_ROUNDS):
        blamed: list[tuple[Queue, Exception]] = []
        try:
            decision = decide(world, left, lambda queue, error: blamed.append((queue, error)))  # noqa: B023
        except Exception:  # noqa: BLE001 - supervision: raised outside the turn of a queue
            blamed = list(culprits(left, lambda some: decide(world, some)))
        if not blamed:
            return world, decision
        left = list(_without(world, left, blamed, ward))
    return world, decide(world, left)


def _without(world: World, queues: list[Queue], blamed: list[tuple[Queue, Exception]], ward: Ward) -> Iterator[Queue]:
    """The queues without the orders at fault; these orders are put into the ward."""
    errors = {id(queue): error for queue, error in blamed}
    for queue in queues:
        if id(queue) not in errors:
            yield queue
            continue
        groups = tuple(queue.groups)
        bad = _bad_groups(world, queue, groups) or [(group, errors[id(queue)]) for group in groups]
        for order, error in {group.order: error for group, error in bad}.items():
            ward.failed("Order", order, error)
        orders = {group.order for group, _ in bad}
        rest = tuple(group for group in groups if group.order not in orders)
        if rest:
            yield msgspec.structs.replace(queue, groups=rest, tasks=sum(group.count for group in rest))


def _bad_groups(world: World, queue: Queue, groups: tuple[Group, ...]) -> list[tuple[Group, Exception]]:
    """The groups at fault in a queue which raised; none when the groups raise only beside other queues, or when all
    groups raise."""
    if queue.parts or len(groups) == 1:
        return []

    def probe(some: Sequence[Group]) -> None:
        decide(world, [msgspec.structs.replace(queue, groups=tuple(some), tasks=sum(group.count for group in some))])

    if _raised(probe, groups[:1]) is not None and _raised(probe, groups[-1:]) is not None:
        # The cause is common to all groups of the queue.
        return []
    return list(culprits(groups, probe))
