"""`cpctl verify` and a replica that hears nothing of etcd: its cache is right for its revision, and too old."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.robustness import promises
from tests.robustness.load import an_order
from tests.robustness.network import linked_to_etcd
from tests.robustness.verifying import verify
from tests.robustness.world import Plan, World


async def caches(world: World) -> Any:
    """The verdict on P8."""
    return (await verify(world))[1]["P8"]


async def test_a_cache_that_stands_still_breaks_p8_until_it_follows_again(tmp_path: Path) -> None:
    async with linked_to_etcd(tmp_path, Plan(replicas=2, processes=1, simulated=0)) as (world, links):
        (deaf,) = world.standbys
        # What the replica says still arrives, so that its candidacy lives on.
        links[deaf.name].hold(links[deaf.name].down)
        order = an_order(world.client.mint.make(), real=True)
        await world.client.orders.submit(order)
        await promises.final(world, {order.id})
        found = await caches(world)
        assert found["ok"] is False
        (violation,) = found["violations"]
        assert f"the cache of {deaf.grpc} stayed behind" in violation["why"]
        assert 0 < violation["revision"] <= await world.witness.store.revision()
        links[deaf.name].release()
        await promises.cache_catches_up(world, deaf, within=10.0)
        assert (await caches(world))["ok"] is True


async def test_a_cache_that_is_cut_off_while_nothing_happens_breaks_p8_by_its_age(tmp_path: Path) -> None:
    async with linked_to_etcd(tmp_path, Plan(replicas=2, processes=0, simulated=0)) as (world, links):
        (deaf,) = world.standbys
        links[deaf.name].hold(links[deaf.name].down)
        found = await caches(world)
        assert found["ok"] is False
        (violation,) = found["violations"]
        assert violation["why"].startswith(f"the cache of {deaf.grpc} ")
