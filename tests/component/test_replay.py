"""Cycles of a real leader on a real etcd, decided again from history."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import Compacted, NotFound, Refused
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.leadership import Cycle
from controlplane.model.order import Order, Resolved
from controlplane.model.rule import Effect, Rule
from controlplane.replay import past_cycles
from controlplane.store import codec, keys
from controlplane.verify.gathering import replayed_cycles
from controlplane.verify.promises import SENTENCES
from tests.builders import an_order
from tests.component.leading_stage import Stage, leading
from tests.etcd import Etcd
from tests.unit.cli.test_exit_codes import cpctl


@pytest.fixture
async def stage(etcd: Etcd) -> AsyncIterator[Stage]:
    async with leading(etcd) as started:
        yield started


async def busy(stage: Stage, *, rounds: int = 30) -> None:
    """Orders of several owners and kinds that come, wait, displace each other, run, fail and end."""
    random = Random(5)
    for name in ("t1", "t2", "t3"):
        await stage.join(name, cpu=2.3, memory=8)
    limit = Rule(name="few", when="job.labels.team == 'film'", then=Effect(limit=4))
    await stage.write({keys.config("rules", "few"): limit})
    for _ in range(rounds):
        order = varied(random)
        await stage.write({keys.order(order.id): order})
        await stage.until(lambda: bool(live(stage)))
        placed = random.choice(live(stage))
        await stage.report(placed, random.choice(("Succeeded", "Failed")))
        await stage.until(partial(lambda one: one not in {found.id for found in live(stage)}, placed.id))


def varied(random: Random) -> Order:
    order = an_order().with_priority(random.choice((20, 50, 80))).of(random.randrange(1, 4)).jobs(cpu=1).build()
    resolved = codec.decode(bytes(order.resolved), Resolved)
    job = replace(
        resolved.jobs[0].job,
        requests={"cpu": random.choice((0.1, 0.3, 0.7)), "memory": random.randrange(3)},
        labels={"team": random.choice(("film", "game"))},
        spread=random.choice(("none", "none", "order")),
        class_=random.choice(("", "loud")),
        hurt_by=random.choice(((), ("loud",))),
        preemptible=random.random() < 0.7,
        time_limit=random.choice((None, 60, 600)),
        prefer=random.choice(((), (("t3",), ("t1", "t2")))),
    )
    gang, pack = random.random() < 0.2, random.choice((1, 1, 3))
    resolved = replace(resolved, jobs=(replace(resolved.jobs[0], job=job),), gang=gang, pack=pack)
    raw = codec.encode(resolved)
    return replace(
        order,
        owner=random.choice(("ada", "bob", "eve")),
        preempts=random.random() < 0.3,
        resolved=msgspec.Raw(raw),
        resolved_digest=hashlib.sha256(raw).hexdigest(),
    )


def live(stage: Stage) -> list[Fulfilment]:
    found = (one for ledger in stage.ledgers.targets.values() for one in ledger.fulfilments.values())
    return sorted(found, key=lambda one: one.id)


async def record(stage: Stage) -> Cycle:
    """The newest cycle that placed something."""
    return [cycle for cycle in stage.cycles() if cycle.placed][-1]


async def test_every_cycle_of_a_busy_leader_is_decided_the_same_again(stage: Stage) -> None:
    await busy(stage)
    cycles = stage.cycles()
    assert sum(cycle.placed for cycle in cycles) > 10
    for cycle in cycles:
        again = (await past_cycles.replay(stage.store, cycle)).replayed
        assert (again.same, again.placed, again.considered) == (True, cycle.placed, cycle.considered), cycle


async def test_another_process_comes_to_the_same_decisions(stage: Stage, etcd: Etcd) -> None:
    await busy(stage, rounds=12)
    seen, why = await replayed_cycles.newest_cycles(stage.store, SystemClock())
    assert (len(seen), why) == (len(stage.cycles()), "")
    _, out, _ = await cpctl("verify", "--etcd", etcd.endpoint, "-o", "json")
    p6 = next(promise for promise in json.loads(out)["promises"] if promise["promise"] == "P6")
    expected = {"promise": "P6", "sentence": SENTENCES["P6"], "ok": True, "checked": len(seen), "violations": []}
    assert p6 == expected


async def test_what_cannot_be_repeated_says_why(stage: Stage) -> None:
    await stage.join("t1", cpu=1)
    await stage.is_placed(await stage.submit(an_order().jobs(cpu=1)))
    cycle = await record(stage)
    with pytest.raises(NotFound):
        await past_cycles.record_of(stage.store, 999)
    with pytest.raises(Refused):
        await past_cycles.replay(stage.store, replace(cycle, engine="another-1"))
    await stage.store.compact(stage.cache.revision)
    with pytest.raises(Compacted, match="does not remember"):
        await past_cycles.replay(stage.store, cycle)


async def replayed(etcd: Etcd, cycle: int) -> tuple[int, Any, str]:
    code, out, err = await cpctl("replay", "--cycle", str(cycle), "--etcd", etcd.endpoint, "-o", "json")
    return code, json.loads(out) if out else None, err


async def test_cpctl_replays_a_cycle_and_says_whether_it_is_the_same(stage: Stage, etcd: Etcd) -> None:
    await stage.join("t1", cpu=1)
    await stage.is_placed(await stage.submit(an_order().jobs(cpu=1)))
    cycle = await record(stage)
    code, shown, _ = await replayed(etcd, cycle.n)
    assert code == 0
    assert shown == {
        "cycle": cycle.n, "epoch": cycle.epoch, "revision": cycle.revision, "engine": cycle.engine,
        "expected": cycle.hash, "got": cycle.hash, "same": True, "placed": 1, "considered": 1,
    }  # fmt: skip
    await stage.write({keys.cycle(cycle.epoch, cycle.n): replace(cycle, hash="0" * 64)})
    code, shown, _ = await replayed(etcd, cycle.n)
    assert (code, shown["same"], shown["got"]) == (2, False, cycle.hash)


async def test_cpctl_says_so_when_history_is_compacted(stage: Stage, etcd: Etcd) -> None:
    await stage.join("t1", cpu=1)
    await stage.is_placed(await stage.submit(an_order().jobs(cpu=1)))
    cycle = await record(stage)
    await stage.store.compact(stage.cache.revision)
    code, shown, err = await replayed(etcd, cycle.n)
    assert (code, shown) == (1, None)
    why = f"cycle {cycle.n} saw revision {cycle.revision}, which etcd does not remember any more"
    assert err.endswith(f"error: Compacted: {why}\n")
    code, shown, err = await replayed(etcd, 999)
    assert (code, shown) == (1, None)
    assert err.endswith("error: NotFound: cycle: there is no cycle 999 on record\n")
