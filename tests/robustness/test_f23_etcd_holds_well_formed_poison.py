"""F23: poison of the right types, in every tree: ends of the calendar, extreme numbers, names that do not fit their
key, candidates without a lease. Everybody else's orders run, every list answers, and nobody is deposed for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from controlplane.aio.clock import SystemClock
from controlplane.client.service_calls import ReadCalls
from controlplane.model.errors import Broken
from controlplane.model.leadership import Candidate, Term
from controlplane.model.order import Order
from controlplane.model.scalepolicy import Made
from controlplane.store import codec, keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, Value, put
from controlplane.wire.v1 import common_pb2
from tests import poison
from tests.fault_reports import Tell
from tests.poison import Poison, a_sample
from tests.robustness import promises
from tests.robustness.load import an_order, load
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.recovery import Fault
from tests.robustness.world import Plan, World, a_world

KEPT = ("P2", "P7", "P8")
# Of each field: more of them say nothing new, and each costs every replica a line in its log.
_OF_A_FIELD = 2
_AT_ONCE = 10
END = "9999-12-31T23:59:59.999Z"


def the_table() -> Iterator[Poison]:
    """What stopped the plane, or somebody's list, once: written as it was found."""
    settings = {
        "kind": "Settings", "event_ttl": 1e300, "failure_memory": 1e300, "clean_up": 1e300, "history": 1e300,
        "cycle_budget": 0, "joblet_lease": 1e300, "default_requests": {"cpu": -1},
        "quotas": {"*": {"live_tasks": -1, "quantities": {"cpu": 1e-310}}},
    }  # fmt: skip
    yield Poison("settings", keys.SETTINGS, msgspec.json.encode(settings))
    for name, slots in (("wide", 10**30), ("wider", 10**12)):
        target = {"kind": "Target", "name": name, "driver": "process", "max_fulfilments": slots}
        yield Poison("slots", keys.config("targets", name), msgspec.json.encode(target))
    for changes in (
        {"created": "garbage", "deadline": 100},
        {"created": "", "deadline": 100},
        {"created": END, "schedule": {"cron": "* * * * *"}},
        {"not_before": "0001-01-01T00:00:00.000Z", "schedule": {"cron": "* * * * *"}},
        {"resolved_digest": "another's"},
    ):
        order = {**a_sample(Order), "template": "", "scheduled": None, **changes}
        yield Poison("order", keys.order(order["id"]), msgspec.json.encode(order))
    nested = "[1]" + ".all(x, [1]" * 25 + ".all(x, true)" + ")" * 25
    for name, rule in (("nested", {"when": nested, "then": {"forbid": True}}), ("limit", {"then": {"limit": -1}})):
        raw = msgspec.json.encode({"kind": "Rule", "name": name, "when": "true", **rule})
        yield Poison("rule", keys.config("rules", name), raw)
    made = {**a_sample(Made), "target": "../../../elsewhere"}
    yield Poison("made", keys.made("x"), msgspec.json.encode(made))
    ghost = Candidate(id="ghost", incarnation="g", grpc="g", http="h", pulse="p", pid=1, version="0")
    yield Poison("candidate without a lease", f"{keys.CANDIDATES.prefix}x", codec.encode(ghost))
    yield Poison("term", f"{keys.ROOT}terms/99999999999999999999", codec.encode(Term(epoch=1, id="x", since="x")))
    yield Poison("totals", keys.TOTALS, b'{"kind":"Totals","epoch":1,"orders":{"total":%d}}' % 10**30)


def everything_insane() -> Iterator[Poison]:
    """Some of each field of each struct; what is sane after all is somebody's order or target, and no poison."""
    for _, found in poison.everything():
        insane = [one for one in found if _is_insane(one) and "/config/settings" not in one.key]
        yield from insane[:_OF_A_FIELD]


def _is_insane(one: Poison) -> bool:
    tree, parts = keys.parse(one.key) or ("", ())
    rule = keys.rule_of(tree, parts) if parts else None
    try:
        if rule is not None:
            codec.read(Value(one.key, one.value, 1, 1, 0), rule.struct)
    except Broken:
        return True
    return False


async def strew(world: World, found: list[Poison]) -> None:
    store = Store(EtcdOptions((world.etcd.endpoint,)), SystemClock())
    try:
        by_key = list({one.key: one for one in found}.values())
        for start in range(0, len(by_key), _AT_ONCE):
            some = by_key[start : start + _AT_ONCE]
            await store.commit(Item(then=tuple(put(one.key, one.value) for one in some)))
    finally:
        await store.close()


async def every_list_answers(world: World) -> None:
    """To its last page; and what is asked about the whole."""
    lists = [service for service in vars(world.client).values() if isinstance(service, ReadCalls)]
    assert len(lists) > 9, "every kind has its list"
    for service in lists:
        request: Any = common_pb2.ListRequest(limit=1000)
        while True:
            page = await service.page(request)
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
    for ask in ("status", "totals", "settings", "leader", "hash"):
        await getattr(world.client.cluster, ask)()


async def a_command_runs(world: World) -> None:
    """As `cpctl run -- true` does."""
    identity = world.client.mint.make()
    await world.client.orders.submit(an_order(identity, command=("true",), real=True))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await world.client.orders.get(identity)).status.phase != "Succeeded":
            await asyncio.sleep(0.1)


async def test_well_formed_poison_in_every_tree_leaves_the_rest_alone(tmp_path: Path, tell: Tell) -> None:
    """Before and after a change of leader, and after every replica was started anew beside the poison."""
    found = [*the_table(), *everything_insane()]
    ghosts = len({one.key for one in found if one.key.startswith(keys.CANDIDATES.prefix)})
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        epoch = world.witness.epoch
        await strew(world, found)
        tell(f"{len(found)} poisons; {await Fault(world).went_on(rates=rates)}")
        await a_command_runs(world)
        await every_list_answers(world)
        assert world.witness.epoch == epoch, "poison changes no leader"
        fault = Fault(world)
        world.leader.kill()
        tell(f"after the death of the leader: {await fault.followed(within=1.0, rates=rates)}")
        world.replicas[fault.leader].start()
        await world.ready(beside=ghosts)
        await a_command_runs(world)
        await every_list_answers(world)
        assert (await world.client.cluster.status()).poisoned > len(found) // 4, "a person can see that there is poison"
        await promises.kept(world, running, *KEPT, strewn={one.key for one in found})
        for replica in world.replicas.values():
            replica.kill()
        dead = await world.witness.caught_up()
        for replica in world.replicas.values():
            replica.start()
        # The keys of their former lives stand until their leases have run out.
        await world.witness.until(lambda: world.witness.epoch > dead, "one of the new lives leads")
        await world.ready(beside=ghosts)
        terms = len(world.witness.terms)
        await a_command_runs(world)
        await every_list_answers(world)
        assert len(world.witness.terms) == terms, "nobody is deposed for poison"


async def test_a_single_replica_works_beside_well_formed_poison_and_starts_beside_it(tmp_path: Path) -> None:
    """Nobody else is there to lead, so each term that poison ends would be seen."""
    found = [*the_table(), *everything_insane()]
    ghosts = len({one.key for one in found if one.key.startswith(keys.CANDIDATES.prefix)})
    async with a_world(tmp_path, Plan(replicas=1, processes=1, simulated=0, ttl=20)) as world:
        await strew(world, found)
        terms = len(world.witness.terms)
        await a_command_runs(world)
        await every_list_answers(world)
        assert len(world.witness.terms) == terms, "poison ends no term"
        status = await world.client.cluster.status()
        assert status.poisoned > len(found) // 4
        assert all(one.key and one.rule for one in status.poisoned_keys)
        for replica in world.replicas.values():
            replica.kill()
            replica.start()
        await world.ready(beside=ghosts)
        await a_command_runs(world)
        await every_list_answers(world)
        assert len(world.witness.terms) == terms + 1, "one start, one term"
