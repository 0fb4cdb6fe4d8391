"""Chaos: faults of the catalogue in an order that chance gives, one seed always the same one.

The schedule, which fault comes when, for how long and whom it meets, is a pure function of the seed. Whom a role means
(the leader, a standby) is known only when the fault strikes, and how far everything else got by then is the machine's
business: a seed repeats the schedule, not the run. A part that another fault has hold of is left to that fault.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from aetcd import rpc

from controlplane.model.errors import ControlPlaneError
from controlplane.store import keys
from controlplane.store.transaction import Item, delete
from controlplane.wire.v1 import cluster_pb2
from tests.robustness.link import Link, linked
from tests.robustness.network import Links, linked_to_etcd
from tests.robustness.parts import Part, Replica
from tests.robustness.world import Plan, World

TTL = 3
FAR = "far"
SETTINGS = cluster_pb2.Settings(joblet_lease=2, heartbeat=0.5, target_grace=2, kill_grace=1)
_FIRST_SECONDS = 3.0
_ALONE = 0.7
_DELAY = (0.075, 0.05)
_AGAIN_SECONDS = 0.2
_ACTIVATE, _DEACTIVATE, _NOSPACE, _MEMBER = 1, 2, 1, 1
_REPLICAS = ("leader", "leader", "standby-0", "standby-1")
_JOBLETS = ("local-1", FAR, "sim")


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault: when it begins and how long it lasts, in seconds, and whom it meets."""

    at: float
    lasts: float
    fault: str
    whom: str

    def __str__(self) -> str:
        return f"{self.at:6.2f} s for {self.lasts:5.2f} s: {self.fault} {self.whom}"


class Arena:
    """A world with links that can be cut, and which of its parts a fault has hold of."""

    def __init__(self, world: World, links: Links, far: Sequence[Link]) -> None:
        self.world = world
        self.links = links
        self.far = far
        self._held: set[str] = set()

    def replica(self, role: str) -> Replica | None:
        """Who plays that role now; another one when a fault has hold of it, None when of all."""
        standbys = [replica for replica in self.world.replicas.values() if replica.name != self.world.witness.leader]
        first = self.world.replicas.get(self.world.witness.leader) if role == "leader" else None
        turned = standbys[::-1] if role == "standby-1" else standbys
        queue = [*([first] if first is not None else []), *turned, *self.world.replicas.values()]
        return next((replica for replica in queue if replica.name not in self._held), None)

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
    async def hold_replica(self, role: str) -> AsyncIterator[Replica | None]:
        replica = self.replica(role)
        if replica is None:
            yield None
            return
        async with self.hold(replica.name):
            yield replica


Fault = Callable[[Arena, Strike], Awaitable[None]]


async def _killed(part: Part, seconds: float) -> None:
    part.kill()
    await asyncio.sleep(seconds)
    part.start()


async def _stopped(part: Part, seconds: float) -> None:
    part.signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    part.signal(signal.SIGCONT)


async def kill_replica(arena: Arena, strike: Strike) -> None:
    async with arena.hold_replica(strike.whom) as replica:
        if replica is not None:
            await _killed(replica, strike.lasts)


async def stop_replica(arena: Arena, strike: Strike) -> None:
    async with arena.hold_replica(strike.whom) as replica:
        if replica is not None:
            await _stopped(replica, strike.lasts)


async def restart_replica(arena: Arena, strike: Strike) -> None:
    async with arena.hold_replica(strike.whom) as replica:
        if replica is not None:
            replica.signal(signal.SIGTERM)
            await replica.ended()
            await asyncio.sleep(strike.lasts)
            replica.start()


def _cut(*names: str) -> Fault:
    """Holds what passes these ways between a replica and etcd."""

    async def cut(arena: Arena, strike: Strike) -> None:
        async with arena.hold_replica(strike.whom) as replica:
            if replica is not None:
                link = arena.links[replica.name]
                link.hold(*(getattr(link, name) for name in names))
                await asyncio.sleep(strike.lasts)
                link.release()

    return cut


async def refuse_etcd(arena: Arena, strike: Strike) -> None:
    async with arena.hold_replica(strike.whom) as replica:
        if replica is not None:
            link = arena.links[replica.name]
            await link.refuse()
            await asyncio.sleep(strike.lasts)
            link.listen()


async def lose_answers(arena: Arena, strike: Strike) -> None:
    """What the replica writes arrives, the answers never do."""
    async with arena.hold_replica(strike.whom) as replica:
        if replica is not None:
            link = arena.links[replica.name]
            link.hold(link.down)
            await asyncio.sleep(strike.lasts)
            await link.refuse()
            link.release()
            link.listen()


async def delay_etcd(arena: Arena, strike: Strike) -> None:
    async with arena.hold_replica(strike.whom) as replica:
        if replica is not None:
            ways = (arena.links[replica.name].up, arena.links[replica.name].down)
            for way in ways:
                way.delay(*_DELAY)
            await asyncio.sleep(strike.lasts)
            for way in ways:
                way.delay(0.0, 0.0)


async def kill_etcd(arena: Arena, strike: Strike) -> None:
    async with arena.hold("etcd") as free:
        if free:
            arena.world.etcd.kill()
            await asyncio.sleep(strike.lasts)
            await asyncio.to_thread(arena.world.etcd.start)


async def stop_etcd(arena: Arena, strike: Strike) -> None:
    async with arena.hold("etcd") as free:
        if free:
            arena.world.etcd.pause()
            await asyncio.sleep(strike.lasts)
            arena.world.etcd.resume()


async def compact(arena: Arena, strike: Strike) -> None:
    """As far as the witness has seen: it must not miss anything itself."""
    witness = arena.world.witness
    with suppress(ControlPlaneError):
        await witness.store.compact(witness.revision)


def _leader_key(world: World) -> str:
    queue = [value for key, value in world.witness.values.items() if key.startswith(keys.ELECTION)]
    return min(queue, key=lambda value: value.create_revision).key if queue else ""


async def revoke_lease(arena: Arena, strike: Strike) -> None:
    key = _leader_key(arena.world)
    if key:
        with suppress(ControlPlaneError):
            await arena.world.witness.store.revoke(int(key.removeprefix(keys.ELECTION), 16))


async def delete_leader_key(arena: Arena, strike: Strike) -> None:
    key = _leader_key(arena.world)
    if key:
        with suppress(ControlPlaneError):
            await arena.world.witness.store.commit(Item(then=(delete(key),)))


async def step_down(arena: Arena, strike: Strike) -> None:
    with suppress(ControlPlaneError):
        await arena.world.client.cluster.step_down()


async def kill_joblet(arena: Arena, strike: Strike) -> None:
    async with arena.hold(strike.whom) as free:
        if free:
            await _killed(arena.world.joblets[strike.whom], strike.lasts)


async def stop_joblet(arena: Arena, strike: Strike) -> None:
    async with arena.hold(strike.whom) as free:
        if free:
            await _stopped(arena.world.joblets[strike.whom], strike.lasts)


async def cut_joblet(arena: Arena, strike: Strike) -> None:
    async with arena.hold("far links") as free:
        if free:
            for link in arena.far:
                link.hold()
            await asyncio.sleep(strike.lasts)
            for link in arena.far:
                link.release()


async def kill_shims(arena: Arena, strike: Strike) -> None:
    """Of all commands that run there; the joblet lives and sees it."""
    async with arena.hold(strike.whom) as free:
        if free:
            arena.world.joblets[strike.whom].kill_commands()


async def fill_etcd(arena: Arena, strike: Strike) -> None:
    """etcd says that it is out of space, as it does when its quota is used up."""
    async with arena.hold("space") as free:
        if free:
            await _alarm(arena.world, _ACTIVATE)
            await asyncio.sleep(strike.lasts)
            await _alarm(arena.world, _DEACTIVATE)


async def _alarm(world: World, action: int) -> None:
    """However long it takes: an alarm that stays would be a fault that never ends."""
    request = rpc.AlarmRequest(action=action, memberID=_MEMBER, alarm=_NOSPACE)
    while True:
        try:
            await world.witness.store.channels.read(
                lambda channel, left: rpc.MaintenanceStub(channel).Alarm(request, timeout=left)
            )
        except ControlPlaneError:
            await asyncio.sleep(_AGAIN_SECONDS)
        else:
            return


@dataclass(frozen=True, slots=True)
class Kind:
    """One fault of the catalogue: whom it may meet, and how long it lasts at least and at most."""

    fault: Fault
    whom: Sequence[str] = ("",)
    seconds: tuple[float, float] = (0.0, 0.0)


# New ones come last: a seed is kept together with how many there were.
CATALOGUE: dict[str, Kind] = {
    "compact history": Kind(compact),
    "cut a replica off from etcd": Kind(_cut("up", "down"), _REPLICAS, (0.5, 2.0 * TTL)),
    "cut joblet": Kind(cut_joblet, (FAR,), (0.5, 8.0)),
    "delay between a replica and etcd": Kind(delay_etcd, _REPLICAS, (2.0, 8.0)),
    "delete the leader's key": Kind(delete_leader_key),
    "hold what a replica says to etcd": Kind(_cut("up"), _REPLICAS, (0.5, 2.0 * TTL)),
    "hold what etcd answers a replica": Kind(_cut("down"), _REPLICAS, (0.5, 2.0 * TTL)),
    "kill etcd": Kind(kill_etcd, seconds=(0.0, 4.0)),
    "kill joblet": Kind(kill_joblet, _JOBLETS, (0.0, 8.0)),
    "kill replica": Kind(kill_replica, _REPLICAS, (0.0, 3.0)),
    "lose etcd's answers to a replica": Kind(lose_answers, _REPLICAS, (0.02, 1.0)),
    "refuse a replica's connections to etcd": Kind(refuse_etcd, _REPLICAS, (0.2, 2.0 * TTL)),
    "restart replica": Kind(restart_replica, _REPLICAS, (0.0, 1.0)),
    "revoke the leader's lease": Kind(revoke_lease),
    "step down": Kind(step_down),
    "stop etcd": Kind(stop_etcd, seconds=(0.2, 4.0)),
    "stop joblet": Kind(stop_joblet, _JOBLETS, (0.5, 8.0)),
    "stop replica": Kind(stop_replica, _REPLICAS, (0.5, 3.0 * TTL)),
    "kill the shims of a joblet": Kind(kill_shims, ("local-1", FAR)),
    "fill etcd": Kind(fill_etcd, seconds=(0.5, 5.0)),
}


def schedule(seed: int, seconds: float, kinds: int = len(CATALOGUE)) -> list[Strike]:
    """No fault is left at the end of that time. Most come alone, some while the one before still lasts.

    `kinds`: of the catalogue only so many, as it was once.
    """
    names = list(CATALOGUE)[:kinds]
    chance = random.Random(f"schedule-{seed}")
    strikes: list[Strike] = []
    at = _FIRST_SECONDS
    while True:
        name = chance.choice(names)
        kind = CATALOGUE[name]
        lasts, whom = chance.uniform(*kind.seconds), chance.choice(kind.whom)
        gap, alone = chance.uniform(0.3, 2.0), chance.random() < _ALONE
        if at + lasts > seconds:
            return strikes
        strikes.append(Strike(at, lasts, name, whom))
        at += gap + (lasts if alone else 0.0)


async def unleash(arena: Arena, strikes: Sequence[Strike]) -> None:
    """Returns when the last fault is healed."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as faults:
        for strike in strikes:
            await asyncio.sleep(max(0.0, began + strike.at - loop.time()))
            faults.create_task(_strike(arena, strike))


async def _strike(arena: Arena, strike: Strike) -> None:
    await CATALOGUE[strike.fault].fault(arena, strike)


@asynccontextmanager
async def an_arena(folder: Path, plan: Plan | None = None) -> AsyncIterator[Arena]:
    """Replicas reach etcd through links, and the target `far` reaches the replicas through links."""
    plan = replace(plan or Plan(ttl=TTL, processes=1, simulated=2), settings=SETTINGS)
    async with AsyncExitStack() as stack:
        world, links = await stack.enter_async_context(linked_to_etcd(folder, plan))
        far = [await stack.enter_async_context(linked(endpoint)) for endpoint in world.endpoints]
        world.add_process_target(FAR, [link.address for link in far])
        await world.witness.until(lambda: world.witness.targets.get(FAR) == "Ready", f"{FAR} is Ready")
        try:
            yield Arena(world, links, far)
        finally:
            for part in (*world.replicas.values(), *world.joblets.values()):
                if part.running:
                    part.signal(signal.SIGCONT)
