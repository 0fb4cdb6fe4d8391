"""A past cycle, decided again and compared with its leader's record.

A cycle is a pure function of the world at a revision and of the inputs on its record, so the same engine must come to
the same decision, byte for byte. A cycle that cannot be repeated raises: NotFound when the cycle is not on record,
Refused when another engine decided it, Compacted when etcd has compacted its revision.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from controlplane.cache.effective_settings import settings_of
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.past import ledgers_at, ledgers_through
from controlplane.engine import decide as engine
from controlplane.engine.decision import Decision
from controlplane.engine.guarding import decide_guarded
from controlplane.engine.service import Queue
from controlplane.engine.world import World
from controlplane.model import times
from controlplane.model.errors import Broken, Compacted, NotFound, Refused
from controlplane.model.isolation import Casualties
from controlplane.model.leadership import Cycle
from controlplane.replay import Replayed
from controlplane.store import codec, keys
from controlplane.store.kv import Store
from controlplane.survey.explaining import survey


async def records(store: Store) -> list[Cycle]:
    """Every cycle on record, oldest first. Unreadable values are skipped."""
    cycles = []
    async for page in store.pages(f"{keys.ROOT}cycles/"):
        for value in page.values:
            try:
                cycles.append(codec.decode(value.value, Cycle))
            except Broken:
                continue
    return sorted(cycles, key=lambda record: (record.n, record.epoch))


async def record_of(store: Store, n: int) -> Cycle:
    same_number = [record for record in await records(store) if record.n == n]
    if not same_number:
        raise NotFound(f"cycle: there is no cycle {n} on record", field="cycle")
    return same_number[-1]


class RepeatedCycle(NamedTuple):
    """A cycle decided again, with all inputs of the decision."""

    replayed: Replayed
    ledgers: Ledgers
    world: World
    queues: list[Queue]
    decision: Decision


async def replay(store: Store, record: Cycle) -> RepeatedCycle:
    check(record)
    try:
        ledgers = await ledgers_at(store, record.revision)
    except Compacted:
        message = f"cycle {record.n} saw revision {record.revision}, which etcd does not remember any more"
        raise Compacted(message) from None
    return await asyncio.to_thread(decide_again, ledgers, record)


async def replay_all(store: Store, cycles: Sequence[Cycle]) -> AsyncGenerator[RepeatedCycle, None]:
    """Replays cycles from the oldest on, in a single pass through history. A result is valid until the next result."""
    in_time = sorted(cycles, key=lambda record: (record.revision, record.n))
    if not in_time:
        return
    async with aclosing(ledgers_through(store, [record.revision for record in in_time])) as worlds:
        for record in in_time:
            yield await asyncio.to_thread(decide_again, await anext(worlds), record)


def check(record: Cycle) -> None:
    """Refused when another engine decided the cycle."""
    if record.engine != engine.VERSION:
        raise Refused(f"cycle {record.n} was decided by engine {record.engine}, this one is {engine.VERSION}")


def decide_again(ledgers: Ledgers, record: Cycle) -> RepeatedCycle:
    """The engine's decision on the world of these ledgers with the inputs of the record."""
    if settings_digest(ledgers) != record.settings_digest:
        raise Refused(f"cycle {record.n} was decided with settings that this version reads otherwise")
    if record.isolated_total > len(record.isolated):
        raise Refused(f"cycle {record.n} left out more orders and targets than are on its record")
    ward = Casualties(orders=record.isolated, targets=record.isolated_targets)
    backlog, surveyed = survey(ledgers, times.parse(record.now, "now"), ward)
    world, decision = decide_guarded(surveyed, backlog.queues, ward)
    return RepeatedCycle(compared(record, decision), ledgers, world, backlog.queues(), decision)


def settings_digest(ledgers: Ledgers) -> str:
    return hashlib.sha256(codec.encode(settings_of(ledgers.cache.snapshot))).hexdigest()[:16]


def compared(record: Cycle, decision: Decision) -> Replayed:
    got = decision.digest()
    return Replayed(
        cycle=record.n,
        epoch=record.epoch,
        revision=record.revision,
        engine=record.engine,
        expected=record.hash,
        got=got,
        same=got == record.hash,
        placed=decision.placed(),
        considered=decision.considered,
    )
