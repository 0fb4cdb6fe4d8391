"""Past cycles decided again, as evidence for P6: the newest ones whose history is still there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime

from controlplane.aio.clock import Clock
from controlplane.cache.job_ledger import RETRY
from controlplane.cache.target_ledger import Kind
from controlplane.engine import decide as engine
from controlplane.engine import words
from controlplane.engine.service import Group, Queue
from controlplane.engine.signature import ANY, STRICT, Signature
from controlplane.engine.world import TargetRow, is_open
from controlplane.model.errors import Compacted, Refused
from controlplane.model.leadership import Cycle
from controlplane.model.nodes import KUBERNETES
from controlplane.model.selectors import match_all
from controlplane.replay import replaying
from controlplane.replay.replaying import Again
from controlplane.store import maintenance
from controlplane.store.kv import Store
from controlplane.verify.p6_priority import Placed, Seen, Waiting

MOST_CYCLES = 50
MOST_SECONDS = 20.0


async def newest(store: Store, clock: Clock) -> tuple[list[Seen], str]:
    """What was seen, oldest first, and why there is no more of it."""
    until = clock.monotonic() + MOST_SECONDS
    cycles, why = await _repeatable(store)
    found: list[Seen] = []
    try:
        async with aclosing(replaying.replay_all(store, cycles)) as again:
            async for one in again:
                found.append(seen(one))
                if clock.monotonic() > until:
                    return found, f"only {len(found)} of {len(cycles)} cycles were decided again, for want of time"
    except (Compacted, Refused) as error:
        return found, str(error)
    return found, why


async def _repeatable(store: Store) -> tuple[list[Cycle], str]:
    """The newest cycles whose world etcd still remembers and that this engine decided, and what came of the others."""
    recorded = (await replaying.records(store))[-MOST_CYCLES:]
    oldest = await maintenance.oldest(store)
    ours = [cycle for cycle in recorded if cycle.engine == engine.VERSION]
    there = [cycle for cycle in ours if cycle.revision >= oldest]
    if len(ours) < len(recorded):
        return there, f"{len(recorded) - len(ours)} cycles were decided by another engine than {engine.VERSION}"
    gone = len(ours) - len(there)
    return there, f"{gone} cycles are older than etcd's history" if gone else ""


def seen(again: Again) -> Seen:
    groups = [(queue, group) for queue in again.queues for group in queue.groups]
    priorities = {(group.order, group.job): queue.priority for queue, group in groups}
    placed = tuple(
        Placed(
            one.order, one.job, one.target, one.count, priorities[(one.order, one.job)], dict(one.signature.requests)
        )
        for one in again.decision.placements
    )
    if not placed or not _is_plain(again):
        return Seen(again.replayed, placed)
    done = Counter[tuple[str, str]]()
    for one in placed:
        done[(one.order, one.job)] += one.count
    left = [(queue, group) for queue, group in groups if done[(group.order, group.job)] < group.count]
    waiting = (_waiting(again, queue, group, placed) for queue, group in left if not queue.parts)
    return Seen(again.replayed, placed, tuple(one for one in waiting if one.targets))


def _is_plain(again: Again) -> bool:
    """Whether nothing but a target and its room decides here: no rules, no quotas, no room that is kept."""
    rules = again.ledgers.cache.snapshot.count("config/rules")
    return not rules and not again.world.settings.quotas and words.RESERVED not in again.decision.refused


def _waiting(again: Again, queue: Queue, group: Group, placed: Sequence[Placed]) -> Waiting:
    """With the targets where lower ones were placed, and where nothing but room could have refused it."""
    signature = queue.signature
    targets: frozenset[str] = frozenset()
    if _needs_only_room(again, signature, group):
        lower = {one.target for one in placed if one.priority < queue.priority}
        repelling = {one.target for one in again.decision.placements if _repels(one.signature.kind)}
        rows = (row for row in again.world.targets if row.name in lower - repelling)
        targets = frozenset(row.name for row in rows if _takes(row, signature, again.world.now))
    return Waiting(group.order, group.job, queue.priority, dict(signature.requests), targets)


def _needs_only_room(again: Again, signature: Signature, group: Group) -> bool:
    """What was tried before may have to go elsewhere, so such groups are left out too."""
    tried = again.ledgers.orders[group.order].jobs[group.job].counts[RETRY]
    return not (tried or signature.unique or signature.affinity or signature.single or _repels(signature.kind))


def _repels(kind: Kind) -> bool:
    return kind.exclusive or bool(kind.anti_affinity)


def _takes(row: TargetRow, signature: Signature, now: datetime) -> bool:
    """Policy, driver, region, labels and times, read off the target itself."""
    facts = row.facts
    return (
        row.ready
        and is_open(row, now)
        and not any(_repels(kind) for kind in row.kinds)
        and signature.policy in (ANY, f"{STRICT}{row.name}")
        and (not signature.drivers or facts.driver in signature.drivers)
        and not (signature.imageless and facts.driver == KUBERNETES)
        and signature.region in ("", facts.region)
        and match_all(signature.hard, facts.labels)
    )
