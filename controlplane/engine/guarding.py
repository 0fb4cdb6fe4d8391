"""Guarding: decisions that survive an order or a target that makes the engine raise.

The normal way costs nothing: a decision is made as always. Only when it raises, the cause is looked for, the orders and
targets that cause it are put into the ward, and the decision is made again without them, from the beginning: nothing
that a failed attempt did to the room is left in the result. What raises whatever is left out is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from controlplane.engine.decide import Decision, decide
from controlplane.engine.floor import Floor
from controlplane.engine.room import Room
from controlplane.engine.service import Group, Queue
from controlplane.engine.world import TargetRow, World
from controlplane.model.isolation import Ward

T = TypeVar("T")
# So many culprits are looked for one by one; of more than that, all that come behind are left out with them.
_MOST_CULPRITS = 16
_MOST_ROUNDS = 32


def culprits(items: Sequence[T], probe: Callable[[Sequence[T]], object]) -> Iterator[tuple[T, Exception]]:
    """The items without which the probe does not raise, each with what it raised.

    The first culprit is the last item of the shortest front that raises. It is taken out, and so on.
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
    except Exception as error:  # noqa: BLE001 - supervision: whatever it is, it is somebody's
        return error
    return None


def room_of(world: World, ward: Ward) -> Room:
    """The room of the world, without the targets that make it raise; its own world says which ones are left."""
    try:
        return Room(world)
    except Exception:  # noqa: BLE001 - supervision
        bad = list(culprits(world.targets, lambda rows: Room(_with_targets(world, rows))))
    for row, error in bad:
        ward.failed("Target", row.name, error)
    names = {row.name for row, _ in bad}
    return Room(_with_targets(world, [row for row in world.targets if row.name not in names]))


def _with_targets(world: World, rows: Sequence[TargetRow]) -> World:
    return replace(world, targets=tuple(rows), floor=Floor(tuple(row.facts for row in rows)))


def decide_guarded(world: World, queues: Callable[[], list[Queue]], ward: Ward) -> tuple[World, Decision]:
    """The decision, and the world that it was made in: without the targets that cannot be decided about."""
    try:
        return world, decide(world, queues())
    except Exception:  # noqa: BLE001 - supervision: the slow way finds out whose it is
        return _without_culprits(world, queues(), ward)


def _without_culprits(world: World, queues: list[Queue], ward: Ward) -> tuple[World, Decision]:
    world = room_of(world, ward).world
    left = [replace(queue, groups=tuple(queue.groups)) for queue in queues]
    for _ in range(_MOST_ROUNDS):
        blamed: list[tuple[Queue, Exception]] = []
        try:
            decision = decide(world, left, lambda queue, error: blamed.append((queue, error)))  # noqa: B023
        except Exception:  # noqa: BLE001 - supervision: raised in nobody's turn
            blamed = list(culprits(left, lambda some: decide(world, some)))
        if not blamed:
            return world, decision
        left = list(_without(world, left, blamed, ward))
    return world, decide(world, left)


def _without(world: World, queues: list[Queue], blamed: list[tuple[Queue, Exception]], ward: Ward) -> Iterator[Queue]:
    """The queues without the orders that are to blame, which are put into the ward."""
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
            yield replace(queue, groups=rest, tasks=sum(group.count for group in rest))


def _bad_groups(world: World, queue: Queue, groups: tuple[Group, ...]) -> list[tuple[Group, Exception]]:
    """Of a queue that raised, the groups that do so; none when they do so only beside other queues, or all of them."""
    if queue.parts or len(groups) == 1:
        return []

    def probe(some: Sequence[Group]) -> None:
        decide(world, [replace(queue, groups=tuple(some), tasks=sum(group.count for group in some))])

    if _raised(probe, groups[:1]) is not None and _raised(probe, groups[-1:]) is not None:
        # It is in what they all have in common.
        return []
    return list(culprits(groups, probe))
