"""Whether the promises held: the checks of `cpctl verify`, fed with all that the witness saw and the joblets recorded.

Nothing is judged before every acknowledged order is final.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Set
from functools import partial

import msgspec

from controlplane.aio.clock import SystemClock, wall_milliseconds
from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.model.errors import OutcomeUnknown, Unavailable
from controlplane.model.fulfilment import Ended
from controlplane.verify import history, joblet_records, p8_cache
from controlplane.verify.checks import Checks
from controlplane.verify.gathering import history_reader
from controlplane.verify.promise_verdicts import PromiseVerdict
from tests import encryption
from tests.credentials import TOKEN
from tests.robustness.load import Load
from tests.robustness.parts import Replica
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.world import World

_PATIENT = CallTimeouts(attempt_seconds=PATIENCE_SECONDS, total_seconds=PATIENCE_SECONDS)
ALL = ("P1", "P2", "P3", "P4", "P5", "P7", "P8", "P9")


async def kept(world: World, load: Load, *promises: str, strewn: Set[str] = frozenset()) -> None:
    """Fails when one of these promises was broken, or when an acknowledged order did not succeed exactly once.

    `strewn` are keys that the test itself wrote by hand: what is wrong with them is the fault, not what came of it.
    """
    await load.finish()
    await final(world, load.acknowledged)
    await held(world, load.acknowledged, *promises, strewn=strewn)


async def held(world: World, acknowledged: set[str], *promises: str, strewn: Set[str] = frozenset()) -> None:
    """The same of orders that are all final already."""
    caches = await compare_caches(world) if "P8" in (promises or ALL) else []
    await world.witness.caught_up()
    broken = []
    checks = listened(world)
    await history_reader.settle(world.witness.store, checks.suspicions, SystemClock())
    checks.report_suspicions()
    for verdict in (*judge(world, acknowledged, checks), *caches):
        verdict = _without(verdict, strewn)
        if verdict.promise in (promises or ALL) and not _is_kept(verdict):
            shown = "; ".join(f"{it.key}@{it.revision} {it.why}" for it in verdict.violations[:5])
            broken.append(f"{verdict.promise} ({verdict.checked} checked): {shown} {verdict.why}")
    assert not broken, "\n".join(broken)
    succeeded_once(world, acknowledged)


def _without(verdict: PromiseVerdict, strewn: Set[str]) -> PromiseVerdict:
    left = tuple(found for found in verdict.violations if found.key not in strewn)
    if len(left) == len(verdict.violations):
        return verdict
    return msgspec.structs.replace(verdict, violations=left, ok=not left)


def _is_kept(verdict: PromiseVerdict) -> bool:
    """Simulated attempts die with their joblet and leave no record of their end, so P4 may be unknown in part."""
    return bool(verdict.checked) and (verdict.ok is True or (verdict.ok is None and verdict.promise == "P4"))


async def final(world: World, orders: set[str]) -> None:
    """However long it takes, as long as one after the other becomes final."""
    witness = world.witness
    done = witness.finals(orders)
    try:
        while done < len(orders):
            await witness.until(partial(_more_than, world, orders, done), "another order is final")
            done = witness.finals(orders)
    except AssertionError as error:
        left = sorted(order for order in orders if not witness.finals({order}))
        phases = Counter(witness.phases.get(order, "Pending") for order in left)
        raise AssertionError(
            f"{error}: {len(left)} of {len(orders)} are not: {dict(phases)}, first {left[:3]}"
        ) from None


def _more_than(world: World, orders: set[str], done: int) -> bool:
    return world.witness.finals(orders) > done


def succeeded_once(world: World, orders: set[str]) -> None:
    phases = Counter(world.witness.phases.get(order, "") for order in orders)
    assert phases == {"Succeeded": len(orders)}, f"not all succeeded: {dict(phases)}"
    good: Counter[str] = Counter()
    for _, events in history.by_revision(world.witness.changes):
        for event in events:
            if isinstance(event.object, Ended) and event.is_new:
                good.update(event.object.order for task in event.object.tasks if task.phase == "Succeeded")
    wrong = {order: good[order] for order in orders if good[order] != 1}
    assert not wrong, f"attempts that ended well are not one each: {wrong}"


def listened(world: World) -> Checks:
    """The checks, fed with all that the witness saw."""
    checks = Checks()
    for revision, events in history.by_revision(world.witness.changes):
        checks.change(revision, events)
    return checks


def judge(world: World, acknowledged: set[str], checks: Checks | None = None) -> Iterator[PromiseVerdict]:
    checks = checks or listened(world)
    checks.orders.acknowledged(acknowledged, now_milliseconds=wall_milliseconds())
    for record in recorded(world):
        checks.attempts.record(record)
        checks.exclusive.record(record)
    checks.exclusive.records_end(lambda record: False, time.monotonic())
    yield checks.fenced.verdict()
    yield checks.orders.verdict()
    yield checks.attempts.verdict()
    yield checks.exclusive.verdict()
    yield checks.capacity.verdict()
    yield checks.lifecycle.verdict()
    yield checks.leader.verdict(ttl_seconds=world.ttl)


def recorded(world: World) -> Iterator[joblet_records.JobletRecord]:
    """What the joblets wrote down."""
    for joblet in world.joblets.values():
        for line in joblet.records().splitlines():
            record = joblet_records.parse(line)
            if record is not None:
                yield record


async def compare_caches(world: World) -> list[PromiseVerdict]:
    running = [replica for replica in world.replicas.values() if replica.running]
    return [p8_cache.judge(await asyncio.gather(*(_told(world, replica) for replica in running)))]


async def cache_catches_up(world: World, replica: Replica, *, within: float) -> None:
    """The replica's cache contains what is in etcd now within that time, and is right."""
    head = await world.witness.store.revision()
    async with Client([replica.grpc], token=TOKEN, ca_file=encryption.ca_file()) as client, asyncio.timeout(within):
        while await _revision(client) < head:
            await asyncio.sleep(0.05)
    told = await _told(world, replica)
    verdict = p8_cache.judge([told])
    assert verdict.ok, verdict
    assert told.revision >= head


async def _revision(client: Client) -> int:
    """Of its cache; 0 while it cannot be asked."""
    try:
        return (await client.cluster.status()).revision
    except (Unavailable, OutcomeUnknown):
        return 0


async def _told(world: World, replica: Replica) -> p8_cache.CacheAnswer:
    name = replica.name
    async with Client([replica.grpc], token=TOKEN, ca_file=encryption.ca_file(), timeouts=_PATIENT) as client:
        try:
            told = await client.cluster.hash()
        except (Unavailable, OutcomeUnknown) as error:
            return p8_cache.CacheAnswer(name, failure=str(error))
    listing = await history_reader.listing(world.witness.store, told.revision)
    return p8_cache.CacheAnswer(name, told.revision, told.hash, told.keys, listing.hash(), listing.keys)
