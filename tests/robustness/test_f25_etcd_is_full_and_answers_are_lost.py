"""F25: etcd is out of space, and answers to the leader's writes are lost: what ran is still taken up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.etcd import running_etcd
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.link import Link
from tests.robustness.load import an_order, load
from tests.robustness.network import Links, linked_to_etcd
from tests.robustness.test_f11_etcd_is_full import KEPT, QUOTA, fill, make_room
from tests.robustness.world import Plan, World, names

TTL = 3
COUNT = 40
# The leader may have to be followed: its lease, and a moment for the next one.
GOES_ON = 2 * TTL + 2


async def lose_answers(link: Link, *, times: int, apart: float) -> None:
    """Writes reach etcd, their answers do not: each time the connection ends while they are on their way back."""
    for _ in range(times):
        link.hold(link.down)
        await asyncio.sleep(apart / 2)
        await link.refuse()
        link.release()
        link.listen()
        await asyncio.sleep(apart / 2)


def ended(world: World, orders: list[str]) -> int:
    return sum(world.witness.phases.get(order) == "Succeeded" for order in orders)


async def submit_commands(world: World) -> list[str]:
    """They end one after the other, and so at every moment of what follows: filling etcd takes some seconds."""
    orders = []
    for number in range(COUNT):
        seconds = f"{10 + number * 0.4:.1f}"
        order = an_order(world.client.mint.make(), command=("sleep", seconds), real=True, target="wide")
        await world.client.orders.submit(order)
        orders.append(order.id)
    phases = world.witness.phases
    await world.witness.until(lambda: all(phases.get(order) in ("Running", "Succeeded") for order in orders), "all run")
    return orders


@pytest.mark.parametrize("times", [1, 6])
async def test_ends_are_taken_up_in_a_full_etcd_whose_answers_were_lost(tmp_path: Path, tell: Tell, times: int) -> None:
    flags = {name: ("--etcd-quota", str(QUOTA)) for name in names(3)}
    with running_etcd(tmp_path / "etcd", [f"--quota-backend-bytes={QUOTA}"]) as etcd:
        async with (
            linked_to_etcd(tmp_path, Plan(ttl=TTL, flags=flags), etcd=etcd) as (world, links),
            load(world.endpoints) as running,
        ):
            await running.warm()
            running.pause()
            world.add_process_target("wide", capacity=f"cpu={COUNT},real={COUNT}")
            await world.witness.until(lambda: world.witness.targets.get("wide") == "Ready", "the target is Ready")
            orders = await submit_commands(world)
            await fill(world.witness.store)
            await ends_go_on(world, links, orders, times=times, tell=tell)
            await make_room(world)
            running.resume()
            await world.ready()
            await promises.kept(world, running, *KEPT)


async def ends_go_on(world: World, links: Links, orders: list[str], *, times: int, tell: Tell) -> None:
    loop = asyncio.get_running_loop()
    await world.witness.until(lambda: ended(world, orders) > 1, "ends are being taken up")
    assert ended(world, orders) < COUNT / 2, "too much was over before the fault"
    # Some end comes every 0.4 s: in each of these times the leader writes, and does not hear what became of it.
    await lose_answers(links[world.leader.name], times=times, apart=1.0)
    began, before = loop.time(), ended(world, orders)
    if before < COUNT:
        await world.witness.until(lambda: ended(world, orders) > before, "one more end is taken up", seconds=GOES_ON)
    went_on = loop.time() - began
    await world.witness.until(lambda: ended(world, orders) == COUNT, "all ends are taken up")
    tell(f"{times} times: {before} of {COUNT} had ended, the next after {went_on:.2f} s")
