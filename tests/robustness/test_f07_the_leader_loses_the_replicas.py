"""F7: the leader is cut off from the other replicas only, for good and on and off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.etcd import free_ports
from tests.robustness import promises
from tests.robustness.conftest import Tell
from tests.robustness.link import Link, linked
from tests.robustness.load import load
from tests.robustness.recovery import Fault
from tests.robustness.world import Plan, World, a_world, names

TTL = 3
KEPT = ("P1", "P2", "P3", "P4", "P5", "P7", "P9")


@asynccontextmanager
async def pulses_through_links(folder: Path) -> AsyncIterator[tuple[World, dict[str, Link]]]:
    async with AsyncExitStack() as stack:
        links: dict[str, Link] = {}
        flags: dict[str, list[str]] = {}
        for name, port in zip(names(3), free_ports(3), strict=True):
            links[name] = await stack.enter_async_context(linked(f"127.0.0.1:{port}"))
            flags[name] = ["--pulse", f"127.0.0.1:{port}", "--pulse-advertise", links[name].address]
        yield await stack.enter_async_context(a_world(folder, Plan(ttl=TTL, flags=flags))), links


async def test_a_leader_that_nobody_hears_is_followed_at_most_once_in_three_ttl(tmp_path: Path, tell: Tell) -> None:
    async with pulses_through_links(tmp_path) as (world, links), load(world.endpoints) as running:
        rates = await running.warm()
        fault = Fault(world)
        for link in links.values():
            link.hold()
        tell(await fault.went_on(within=1.0, rates=rates))
        await fault.lasts(3 * TTL)
        changes = sum(term.moment > fault.moment for term in world.witness.terms)
        tell(f"changes of leader in three TTL: {changes}")
        assert changes <= 1
        await promises.kept(world, running, *KEPT)


async def test_a_pulse_that_comes_and_goes_changes_the_leader_at_most_once_in_three_ttl(
    tmp_path: Path, tell: Tell
) -> None:
    async with pulses_through_links(tmp_path) as (world, links), load(world.endpoints) as running:
        rates = await running.warm()
        fault = Fault(world)
        while asyncio.get_running_loop().time() < fault.moment + 3 * TTL:
            for link in links.values():
                await link.refuse()
            await asyncio.sleep(0.3)
            for link in links.values():
                link.listen()
            await asyncio.sleep(0.3)
        changes = sum(term.moment > fault.moment for term in world.witness.terms)
        tell(f"{await fault.went_on(within=1.0, rates=rates)}, changes of leader in three TTL: {changes}")
        assert changes <= 1
        await promises.kept(world, running, *KEPT)
