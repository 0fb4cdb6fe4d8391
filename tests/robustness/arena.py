"""The arena of chaos: a world whose ways can all be cut, and which of its parts a fault has hold of.

Replicas reach etcd through links, and the target `far` reaches the replicas through links. An arena of another form has
an etcd of three members whose peers can be cut off, or replicas that hear each other's pulse through links.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from controlplane.wire.v1 import cluster_pb2
from tests.etcd import Etcd, running_etcd
from tests.robustness.link import Link, linked
from tests.robustness.network import Links, linked_pulses
from tests.robustness.parts import Replica
from tests.robustness.peers import Peers, linked_peers
from tests.robustness.world import Plan, World, a_world, names

TTL = 3
FAR = "far"
# Before a replica's name: only its pulse.
PULSE = "the pulse of "
SETTINGS = cluster_pb2.Settings(joblet_lease=2, heartbeat=0.5, target_grace=2, kill_grace=1)


@dataclass(frozen=True, slots=True)
class Form:
    """`members`: etcd has three members. `pulses`: each replica's pulse is heard through a link of its own."""

    members: bool = False
    pulses: bool = False

    def offers(self, needed: Form) -> bool:
        return (self.members or not needed.members) and (self.pulses or not needed.pulses)


@dataclass(frozen=True)
class Ways:
    """What can be cut: each replica's links to etcd, its pulse, the links of `far`, and the members of etcd."""

    etcd: Mapping[str, Sequence[Link]]
    pulses: Links
    far: Sequence[Link]
    peers: Peers | None


class Arena:
    """A part that a fault has hold of is left to that fault."""

    def __init__(self, world: World, ways: Ways) -> None:
        self.world = world
        self.ways = ways
        self._held: set[str] = set()

    @property
    def peers(self) -> Peers:
        assert self.ways.peers is not None
        return self.ways.peers

    def member(self, name: str) -> Etcd:
        return next(member for member in self.peers.etcd.members if member.name == name)

    def replica(self, role: str, of: str = "") -> Replica | None:
        """Who plays that role now; another one when a fault has hold of it, None when of all."""
        standbys = [replica for replica in self.world.replicas.values() if replica.name != self.world.witness.leader]
        first = self.world.replicas.get(self.world.witness.leader) if role == "leader" else None
        turned = standbys[::-1] if role == "standby-1" else standbys
        queue = [*([first] if first is not None else []), *turned, *self.world.replicas.values()]
        return next((replica for replica in queue if of + replica.name not in self._held), None)

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[bool]:
        """Whether the part is this fault's own until the end."""
        free = name not in self._held
        if free:
            self._held.add(name)
        try:
            yield free
        finally:
            if free:
                self._held.discard(name)

    @asynccontextmanager
    async def hold_replica(self, role: str, of: str = "") -> AsyncIterator[Replica | None]:
        """`of`: only this of the replica, so that another fault may meet the rest of it."""
        replica = self.replica(role, of)
        if replica is None:
            yield None
            return
        async with self.hold(of + replica.name):
            yield replica

    @asynccontextmanager
    async def hold_pulses(self) -> AsyncIterator[list[Link]]:
        """Those that no other fault has hold of."""
        async with AsyncExitStack() as stack:
            free: list[Link] = []
            for name, link in self.ways.pulses.items():
                if await stack.enter_async_context(self.hold(PULSE + name)):
                    free.append(link)
            yield free


@asynccontextmanager
async def an_arena(folder: Path, form: Form, plan: Plan | None = None) -> AsyncIterator[Arena]:
    plan = replace(plan or Plan(ttl=TTL, processes=1, simulated=2), settings=SETTINGS)
    async with AsyncExitStack() as stack:
        peers = await stack.enter_async_context(linked_peers(folder / "etcd")) if form.members else None
        etcd = peers.etcd if peers is not None else stack.enter_context(running_etcd(folder / "etcd"))
        links = await _linked_to_members(stack, peers.etcd.members if peers is not None else [etcd], plan)
        plan = replace(plan, ways={name: ",".join(link.url for link in own) for name, own in links.items()})
        pulses: Links = {}
        if form.pulses:
            pulses, flags = await stack.enter_async_context(linked_pulses(plan))
            plan = replace(plan, flags=flags)
        world = await stack.enter_async_context(a_world(folder, plan, etcd=etcd))
        far = [await stack.enter_async_context(linked(endpoint)) for endpoint in world.endpoints]
        world.add_process_target(FAR, [link.address for link in far])
        await world.witness.until(lambda: world.witness.targets.get(FAR) == "Ready", f"{FAR} is Ready")
        try:
            yield Arena(world, Ways(links, pulses, far, peers))
        finally:
            for part in (*world.replicas.values(), *world.joblets.values()):
                if part.running:
                    part.signal(signal.SIGCONT)


async def _linked_to_members(stack: AsyncExitStack, members: Sequence[Etcd], plan: Plan) -> dict[str, list[Link]]:
    """Each replica has a link of its own to each member, and asks another one first."""
    links: dict[str, list[Link]] = {}
    for number, name in enumerate(names(plan.replicas)):
        first = number % len(members)
        turned = [*members[first:], *members[:first]]
        links[name] = [await stack.enter_async_context(linked(member.endpoint)) for member in turned]
    return links
