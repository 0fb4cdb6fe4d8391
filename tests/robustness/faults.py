"""The faults of chaos: each is made, lasts and is mended again in an arena, whatever else happens meanwhile."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from aetcd import rpc

from controlplane.model.errors import Conflict, ControlPlaneError, LimitExceeded, OutcomeUnknown, Unavailable
from controlplane.store import keys
from controlplane.store.transaction import Item, delete
from tests.robustness.arena import PULSE, Arena
from tests.robustness.link import Link
from tests.robustness.parts import Part
from tests.robustness.world import World

_DELAY = (0.075, 0.05)
_AGAIN_SECONDS = 0.2
# What runs on a target may still take so long after its drain began.
_DRAIN_SECONDS = 0.5
_ACTIVATE, _DEACTIVATE, _NOSPACE, _MEMBER = 1, 2, 1, 1


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault: when it begins and how long it lasts, in seconds, and whom it meets."""

    at: float
    lasts: float
    fault: str
    whom: str

    def __str__(self) -> str:
        return f"{self.at:6.2f} s for {self.lasts:5.2f} s: {self.fault} {self.whom}"


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


def cut_etcd(*names: str) -> Fault:
    """Holds what passes these ways between a replica and etcd."""

    async def cut(arena: Arena, strike: Strike) -> None:
        async with arena.hold_replica(strike.whom) as replica:
            if replica is not None:
                links = arena.ways.etcd[replica.name]
                for link in links:
                    link.hold(*(getattr(link, name) for name in names))
                await asyncio.sleep(strike.lasts)
                for link in links:
                    link.release()

    return cut


async def _held(links: Sequence[Link], seconds: float) -> None:
    for link in links:
        link.hold()
    await asyncio.sleep(seconds)
    for link in links:
        link.release()


async def _refused(links: Sequence[Link], seconds: float) -> None:
    for link in links:
        await link.refuse()
    await asyncio.sleep(seconds)
    for link in links:
        link.listen()


async def refuse_etcd(arena: Arena, strike: Strike) -> None:
    async with arena.hold_replica(strike.whom) as replica:
        if replica is not None:
            await _refused(arena.ways.etcd[replica.name], strike.lasts)


async def lose_answers(arena: Arena, strike: Strike) -> None:
    """What the replica writes arrives, the answers never do."""
    async with arena.hold_replica(strike.whom) as replica:
        if replica is not None:
            links = arena.ways.etcd[replica.name]
            for link in links:
                link.hold(link.down)
            await asyncio.sleep(strike.lasts)
            for link in links:
                await link.refuse()
                link.release()
                link.listen()


async def delay_etcd(arena: Arena, strike: Strike) -> None:
    async with arena.hold_replica(strike.whom) as replica:
        if replica is not None:
            ways = [way for link in arena.ways.etcd[replica.name] for way in (link.up, link.down)]
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
    queue = [value for key, value in world.witness.values.items() if key.startswith(keys.CANDIDATES.prefix)]
    return min(queue, key=lambda value: value.create_revision).key if queue else ""


async def revoke_lease(arena: Arena, strike: Strike) -> None:
    key = _leader_key(arena.world)
    if key:
        with suppress(ControlPlaneError):
            await arena.world.witness.store.revoke(int(key.removeprefix(keys.CANDIDATES.prefix), 16))


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
            await _held(arena.ways.far, strike.lasts)


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


async def kill_member(arena: Arena, strike: Strike) -> None:
    async with arena.hold("etcd") as free:
        if free:
            member = arena.member(strike.whom)
            await asyncio.to_thread(member.kill)
            await asyncio.sleep(strike.lasts)
            await asyncio.to_thread(member.start)


async def cut_member(arena: Arena, strike: Strike) -> None:
    """The member keeps its clients."""
    async with arena.hold("etcd") as free:
        if free:
            await arena.peers.isolate(arena.member(strike.whom))
            await asyncio.sleep(strike.lasts)
            arena.peers.heal()


async def hold_pulse(arena: Arena, strike: Strike) -> None:
    """The others hear nothing of that replica, while etcd does."""
    async with arena.hold_replica(strike.whom, of=PULSE) as replica:
        if replica is not None:
            await _held([arena.ways.pulses[replica.name]], strike.lasts)


async def hold_pulses(arena: Arena, strike: Strike) -> None:
    """No replica hears another, while etcd hears all."""
    async with arena.hold_pulses() as pulses:
        await _held(pulses, strike.lasts)


async def refuse_pulses(arena: Arena, strike: Strike) -> None:
    async with arena.hold_pulses() as pulses:
        await _refused(pulses, strike.lasts)


async def drain_target(arena: Arena, strike: Strike) -> None:
    """A person empties a target, and lets it take work again later."""
    async with arena.hold(f"drain of {strike.whom}") as free:
        if free:
            await _wish_drain(arena.world, strike.whom, drain=True)
            await asyncio.sleep(strike.lasts)
            await _wish_drain(arena.world, strike.whom, drain=False)


async def _wish_drain(world: World, target: str, *, drain: bool) -> None:
    """However long it takes: a target that stays drained would be a fault that never ends."""
    while True:
        try:
            item = await world.client.targets.get(target)
            item.drain = drain
            item.ClearField("drain_timeout")
            if drain:
                item.drain_timeout = _DRAIN_SECONDS
            for written_by_the_system in ("status", "live", "created"):
                item.ClearField(written_by_the_system)
            await world.client.targets.update(item)
        except (Conflict, LimitExceeded, OutcomeUnknown, Unavailable):
            await asyncio.sleep(_AGAIN_SECONDS)
        else:
            return
