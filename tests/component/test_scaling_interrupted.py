"""A leader that dies while scaling, after any write or while a provider acts, leaves nothing that is done twice."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from controlplane.controller_manager.made_targets import MadeController, Providing
from controlplane.controller_manager.runner import Controller
from controlplane.controller_manager.scaling import ScalingController
from controlplane.controller_manager.target_controller import TargetController
from controlplane.model.errors import Conflict, Deposed
from controlplane.model.scalepolicy import TargetSize, TargetTemplate
from controlplane.store import keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.kv import Store
from tests.builders import a_fulfilment, an_identity, an_order
from tests.clock import ManualClock
from tests.component.leader_stage import Mortal, Replica, following, lead
from tests.component.scaling_stage import Cloud, a_policy
from tests.etcd import Etcd

ORDER = an_order().of(4).jobs(cpu=1)
PLACED = a_fulfilment(ORDER.identity).on("farm-1").task(0)
POLICY = keys.config("scalepolicies", "farm")
_VARIES = ("epoch", "since", "created", "acted", "at", "request", "id", "session", "instance", "error")


async def converge(replica: Replica, writer: FencedWriter, cloud: Cloud) -> None:
    """Asks every controller about every key until a whole round changes nothing; time passes between rounds."""
    clock = ManualClock()
    providing = Providing({"cloud": cloud, "cluster-api": cloud}, an_identity)
    controllers: list[Controller] = [
        ScalingController(replica.ledgers, replica.settling(writer), clock, an_identity),
        MadeController(replica.ledgers, replica.settling(writer), clock, providing),
        TargetController(replica.ledgers, replica.settling(writer), clock),
    ]
    for _ in range(60):
        before = replica.cache.revision
        for controller, key in [(one, key) for one in controllers for key in one.every_key()]:
            with suppress(Conflict):
                await controller.reconcile(key)
        await replica.cache.reached(await replica.store.revision(), 30)
        clock.pass_seconds(4)
        if replica.cache.revision == before and clock.monotonic() > 1040:
            return
    raise AssertionError("scaling never comes to rest")


Act = Callable[[Replica], Awaitable[object]]


def write(contents: dict[str, msgspec.Struct | None]) -> Act:
    return lambda replica: replica.write(dict(contents))


WORK = write({keys.order(ORDER.identity): ORDER.build()})
BUSY = write({keys.desired("farm-1", PLACED.identity): PLACED.build()})
OVER = write({keys.order(ORDER.identity): None, keys.desired("farm-1", PLACED.identity): None})
SIZES = tuple(TargetSize(capacity={"cpu": cpu}) for cpu in (1, 2))
SIZED = a_policy(max=1, sizes=SIZES, template=TargetTemplate(driver="process"))

GROWS_AND_SHRINKS = [write({POLICY: a_policy()}), WORK, BUSY, OVER]
GETS_LARGER = [write({POLICY: replace(SIZED, min=1)}), WORK, BUSY, OVER]
LOSES_ITS_POLICY = [write({POLICY: a_policy(min=2)}), WORK, BUSY, write({POLICY: None}), OVER]


def state(replica: Replica) -> dict[str, Any]:
    trees = (keys.MADE, keys.SCALING, keys.TARGET_STATUS, keys.TARGETS, keys.INVENTORY, keys.DESIRED)
    return replica.contents(trees, without=_VARIES)


AnyCloud = TypeVar("AnyCloud", bound=Cloud)


async def played(
    etcd: Etcd,
    acts: list[Act],
    make_cloud: Callable[[Store, int | None], AnyCloud],
    *,
    writes: int = 1_000_000,
    effects: int | None = None,
) -> tuple[list[dict[str, Any]], AnyCloud, bool]:
    """Where everything stood after each act when the first leader died on the way, and whether it did."""
    seen: list[dict[str, Any]] = []
    async with following(etcd.endpoint, Replica) as first:
        await first.wipe()
        cloud = make_cloud(first.store, effects)
        term, _ = await lead(first)
        dying = FencedWriter(Mortal(term, writes))
        try:
            for act in acts:
                await act(first)
                await converge(first, dying, cloud)
                seen.append(state(first))
        except* Deposed:
            await term.end()
        else:
            await term.end()
            return seen, cloud, False
    async with following(etcd.endpoint, Replica) as second:
        cloud.store, cloud.left = second.store, None
        _, writer = await lead(second)
        await converge(second, writer, cloud)
        seen.append(state(second))
        for act in acts[len(seen) :]:
            await act(second)
            await converge(second, writer, cloud)
            seen.append(state(second))
    return seen, cloud, True


@pytest.mark.parametrize("acts", [GROWS_AND_SHRINKS, GETS_LARGER, LOSES_ITS_POLICY], ids=["number", "size", "policy"])
async def test_scaling_comes_to_the_same_end_whenever_its_leader_dies(etcd: Etcd, acts: list[Act]) -> None:
    expected, cloud, died = await played(etcd, acts, Cloud)
    assert not died
    effects = sum(cloud.asked.values())
    assert set(cloud.built.values()) == {1}
    for writes in itertools.count():
        found, cloud, died = await played(etcd, acts, Cloud, writes=writes)
        assert found == expected, f"after {writes} writes"
        assert set(cloud.built.values()) == {1}
        if not died:
            break
    assert writes >= 5
    for done in range(effects):
        found, cloud, died = await played(etcd, acts, Cloud, effects=done)
        assert died
        assert found == expected, f"after {done} effects"
        assert set(cloud.built.values()) == {1}


async def test_what_the_acts_lead_to(etcd: Etcd) -> None:
    """The test above would pass if nothing happened at all."""
    async with following(etcd.endpoint, Replica) as replica:
        cloud = Cloud(replica.store)
        _, writer = await lead(replica)

        async def after(act: Act) -> dict[str, tuple[str, str, Any]]:
            await act(replica)
            await converge(replica, writer, cloud)
            made = [entry.read() for entry in replica.cache.snapshot.all(keys.MADE)]
            assert {one.target for one in made} == set(cloud.clusters)
            return {one.target: (one.phase, one.want, one.capacity["cpu"]) for one in made}

        small = ("Up", "run", 1)
        assert await after(GROWS_AND_SHRINKS[0]) == {}
        assert await after(WORK) == {"farm-1": small}
        assert await after(BUSY) == {"farm-1": small, "farm-2": small}
        assert await after(write({POLICY: None})) == {"farm-1": ("Up", "remove", 1)}
        assert await after(OVER) == {}
        assert list(replica.cache.snapshot.all(keys.TARGETS)) == []
        assert replica.read(keys.SCALING, "farm") is None
        assert await after(GETS_LARGER[0]) == {"farm-1": small}
        await after(WORK)
        assert await after(BUSY) == {"farm-1": ("Up", "run", 2)}
        assert await after(OVER) == {"farm-1": small}
