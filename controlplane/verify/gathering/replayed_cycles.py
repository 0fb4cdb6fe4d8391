"""Evidence for P6: the newest past cycles, decided again by this engine, as far as etcd's history reaches.

Of a cycle's waiting groups only those become evidence that wait for capacity alone. Which targets would take a group's
tasks is asked of the engine's own filters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing

from controlplane.aio.clock import Clock
from controlplane.cache.target_ledger import NeighbourKind
from controlplane.engine import decide as engine
from controlplane.engine import filtering, reason_codes
from controlplane.engine.room import Room
from controlplane.engine.service import Group, Queue
from controlplane.engine.signature import Signature
from controlplane.model.errors import Compacted, Refused
from controlplane.model.leadership import Cycle
from controlplane.model.task import TaskState
from controlplane.replay import past_cycles
from controlplane.replay.past_cycles import RepeatedCycle
from controlplane.store import keys, maintenance
from controlplane.store.kv import Store
from controlplane.verify.p6_priority import PlacedGroup, ReplayedCycle, UnplacedGroup

MOST_CYCLES = 50
MOST_SECONDS = 20.0


async def newest_cycles(store: Store, clock: Clock) -> tuple[list[ReplayedCycle], str]:
    """The cycles that could be decided again, oldest first, and the reason why there are no more."""
    until = clock.monotonic() + MOST_SECONDS
    cycles, why = await _repeatable(store)
    replayed: list[ReplayedCycle] = []
    try:
        async with aclosing(past_cycles.replay_all(store, cycles)) as repeated_cycles:
            async for repeated in repeated_cycles:
                replayed.append(as_evidence(repeated))
                if clock.monotonic() > until:
                    why = f"only {len(replayed)} of {len(cycles)} cycles were decided again, for want of time"
                    return replayed, why
    except (Compacted, Refused) as error:
        return replayed, str(error)
    return replayed, why


async def _repeatable(store: Store) -> tuple[list[Cycle], str]:
    """The newest cycles that this engine decided and whose snapshot etcd still has; why the others are left out."""
    recorded = (await past_cycles.records(store))[-MOST_CYCLES:]
    oldest = await maintenance.oldest(store)
    same_engine = [cycle for cycle in recorded if cycle.engine == engine.VERSION]
    repeatable = [cycle for cycle in same_engine if cycle.revision >= oldest]
    if len(same_engine) < len(recorded):
        others = len(recorded) - len(same_engine)
        return repeatable, f"{others} cycles were decided by another engine than {engine.VERSION}"
    gone = len(same_engine) - len(repeatable)
    return repeatable, f"{gone} cycles are older than etcd's history" if gone else ""


def as_evidence(repeated: RepeatedCycle) -> ReplayedCycle:
    groups = [(queue, group) for queue in repeated.queues for group in queue.groups]
    priorities = {(group.order, group.job): queue.priority for queue, group in groups}
    placed = tuple(
        PlacedGroup(
            placement.order,
            placement.job,
            placement.target,
            placement.count,
            priorities[(placement.order, placement.job)],
            dict(placement.signature.requests),
        )
        for placement in repeated.decision.placements
    )
    if not placed or not _only_capacity_decides(repeated):
        return ReplayedCycle(repeated.replayed, placed)
    counts = Counter[tuple[str, str]]()
    for placement in placed:
        counts[(placement.order, placement.job)] += placement.count
    left = [(queue, group) for queue, group in groups if counts[(group.order, group.job)] < group.count]
    room = Room(repeated.world)
    waiting = (_waiting(repeated, room, queue, group, placed) for queue, group in left if not queue.parts)
    return ReplayedCycle(repeated.replayed, placed, tuple(group for group in waiting if group.targets))


def _only_capacity_decides(repeated: RepeatedCycle) -> bool:
    """Whether the cycle had no rules, no quotas and no reserved capacity."""
    rules = repeated.ledgers.cache.snapshot.count(keys.RULES)
    return not rules and not repeated.world.settings.quotas and reason_codes.RESERVED not in repeated.decision.refused


def _waiting(
    repeated: RepeatedCycle, room: Room, queue: Queue, group: Group, placed: Sequence[PlacedGroup]
) -> UnplacedGroup:
    """The group with the targets that took work of lower priority and lacked only capacity for the group's tasks."""
    signature = queue.signature
    targets: frozenset[str] = frozenset()
    if _needs_only_capacity(repeated, signature, group):
        lower = {placement.target for placement in placed if placement.priority < queue.priority}
        repelling = {placed.target for placed in repeated.decision.placements if _repels(placed.signature.kind)}
        willing = {room.floor.names[row] for row in filtering.willing(room, signature)}
        targets = frozenset(willing & lower - repelling)
    return UnplacedGroup(group.order, group.job, queue.priority, dict(signature.requests), targets)


def _needs_only_capacity(repeated: RepeatedCycle, signature: Signature, group: Group) -> bool:
    """False for a group with retries too: a retried task may have to avoid targets."""
    retries = repeated.ledgers.orders[group.order].jobs[group.job].counts[TaskState.WAITING_RETRY]
    return not (retries or signature.unique or signature.affinity or signature.single or _repels(signature.kind))


def _repels(kind: NeighbourKind) -> bool:
    return kind.exclusive or bool(kind.anti_affinity)
