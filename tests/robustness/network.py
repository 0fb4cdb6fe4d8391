"""A world whose replicas reach etcd, or each other's pulse, through links that a test can cut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.etcd import Etcd, free_ports, running_etcd
from tests.robustness.link import Link, linked
from tests.robustness.world import Plan, World, a_world, names

Links = dict[str, Link]


@asynccontextmanager
async def linked_to_etcd(
    folder: Path, plan: Plan | None = None, *, transcribe: bool = False, etcd: Etcd | None = None
) -> AsyncIterator[tuple[World, Links]]:
    """Each replica has a link of its own to etcd; to one that the test started before, when it is given."""
    plan = plan or Plan()
    async with AsyncExitStack() as stack:
        etcd = etcd or stack.enter_context(running_etcd(folder / "etcd"))
        links: Links = {}
        for name in names(plan.replicas):
            links[name] = await stack.enter_async_context(linked(etcd.endpoint, transcribe=transcribe))
        through = replace(plan, ways={name: link.url for name, link in links.items()})
        yield await stack.enter_async_context(a_world(folder, through, etcd=etcd)), links


@asynccontextmanager
async def linked_pulses(plan: Plan) -> AsyncIterator[tuple[Links, dict[str, list[str]]]]:
    """A link to the pulse of each replica, and the flags by which a replica names its link to the others."""
    async with AsyncExitStack() as stack:
        links: Links = {}
        flags: dict[str, list[str]] = {}
        for name, port in zip(names(plan.replicas), free_ports(plan.replicas), strict=True):
            links[name] = await stack.enter_async_context(linked(f"127.0.0.1:{port}"))
            own = ["--pulse", f"127.0.0.1:{port}", "--pulse-advertise", links[name].address]
            flags[name] = [*plan.flags.get(name, ()), *own]
        yield links, flags


@asynccontextmanager
async def linked_to_each_other(folder: Path, plan: Plan | None = None) -> AsyncIterator[tuple[World, Links]]:
    """Each replica's pulse is heard through a link of its own."""
    plan = plan or Plan()
    async with linked_pulses(plan) as (links, flags), a_world(folder, replace(plan, flags=flags)) as world:
        yield world, links
