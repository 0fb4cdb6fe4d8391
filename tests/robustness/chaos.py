"""Chaos: faults of the catalogue in an order that chance gives, one seed always the same one.

The schedule, which fault comes when, for how long and whom it meets, is a pure function of the seed. Whom a role means
(the leader, a standby) is known only when the fault strikes, and how far everything else got by then is the machine's
business: a seed repeats the schedule, not the run. A part that another fault has hold of is left to that fault.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.robustness import faults
from tests.robustness.arena import FAR, TTL, Arena, Form
from tests.robustness.faults import Fault, Strike

_FIRST_SECONDS = 3.0
_ALONE = 0.7
_REPLICAS = ("leader", "leader", "standby-0", "standby-1")
_JOBLETS = ("local-1", FAR, "sim")
_TARGETS = ("local-1", FAR, "sim-0", "sim-1")
_MEMBERS = ("member-0", "member-1", "member-2")
_PLAIN, _WITH_MEMBERS, _WITH_PULSES = Form(), Form(members=True), Form(pulses=True)
# So many kinds there were when every arena had one etcd and direct pulses.
_OF_ONE_FORM = 20


@dataclass(frozen=True, slots=True)
class Kind:
    """One fault of the catalogue: whom it may meet, how long it lasts at least and at most, and in which arena."""

    fault: Fault
    whom: Sequence[str] = ("",)
    seconds: tuple[float, float] = (0.0, 0.0)
    needs: Form = _PLAIN


# New ones come last: a seed is kept together with how many there were.
CATALOGUE: dict[str, Kind] = {
    "compact history": Kind(faults.compact),
    "cut a replica off from etcd": Kind(faults.cut_etcd("up", "down"), _REPLICAS, (0.5, 2.0 * TTL)),
    "cut joblet": Kind(faults.cut_joblet, (FAR,), (0.5, 8.0)),
    "delay between a replica and etcd": Kind(faults.delay_etcd, _REPLICAS, (2.0, 8.0)),
    "delete the leader's key": Kind(faults.delete_leader_key),
    "hold what a replica says to etcd": Kind(faults.cut_etcd("up"), _REPLICAS, (0.5, 2.0 * TTL)),
    "hold what etcd answers a replica": Kind(faults.cut_etcd("down"), _REPLICAS, (0.5, 2.0 * TTL)),
    "kill etcd": Kind(faults.kill_etcd, seconds=(0.0, 4.0)),
    "kill joblet": Kind(faults.kill_joblet, _JOBLETS, (0.0, 8.0)),
    "kill replica": Kind(faults.kill_replica, _REPLICAS, (0.0, 3.0)),
    "lose etcd's answers to a replica": Kind(faults.lose_answers, _REPLICAS, (0.02, 1.0)),
    "refuse a replica's connections to etcd": Kind(faults.refuse_etcd, _REPLICAS, (0.2, 2.0 * TTL)),
    "restart replica": Kind(faults.restart_replica, _REPLICAS, (0.0, 1.0)),
    "revoke the leader's lease": Kind(faults.revoke_lease),
    "step down": Kind(faults.step_down),
    "stop etcd": Kind(faults.stop_etcd, seconds=(0.2, 4.0)),
    "stop joblet": Kind(faults.stop_joblet, _JOBLETS, (0.5, 8.0)),
    "stop replica": Kind(faults.stop_replica, _REPLICAS, (0.5, 3.0 * TTL)),
    "kill the shims of a joblet": Kind(faults.kill_shims, ("local-1", FAR)),
    "fill etcd": Kind(faults.fill_etcd, seconds=(0.5, 5.0)),
    "kill a member of etcd": Kind(faults.kill_member, _MEMBERS, (0.0, 6.0), _WITH_MEMBERS),
    "cut a member of etcd off from its peers": Kind(faults.cut_member, _MEMBERS, (0.5, 8.0), _WITH_MEMBERS),
    "hold the pulse of a replica": Kind(faults.hold_pulse, _REPLICAS, (0.5, 3.0 * TTL), _WITH_PULSES),
    "hold all pulses": Kind(faults.hold_pulses, seconds=(0.5, 3.0 * TTL), needs=_WITH_PULSES),
    "refuse all pulses": Kind(faults.refuse_pulses, seconds=(0.1, 2.0), needs=_WITH_PULSES),
    "drain a target": Kind(faults.drain_target, _TARGETS, (0.0, 8.0)),
}


def form_of(seed: int, kinds: int = len(CATALOGUE)) -> Form:
    """Of the arena in which that seed runs."""
    if kinds <= _OF_ONE_FORM:
        return _PLAIN
    chance = random.Random(f"form-{seed}")
    return Form(members=chance.random() < 0.5, pulses=chance.random() < 0.5)


def has_wishes(kinds: int) -> bool:
    """Whether clients wish anything of single tasks."""
    return kinds > _OF_ONE_FORM


def schedule(seed: int, seconds: float, kinds: int = len(CATALOGUE)) -> list[Strike]:
    """No fault is left at the end of that time. Most come alone, some while the one before still lasts.

    `kinds`: of the catalogue only so many, as it was once.
    """
    form = form_of(seed, kinds)
    names = [name for name in list(CATALOGUE)[:kinds] if form.offers(CATALOGUE[name].needs)]
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
    async with asyncio.TaskGroup() as striking:
        for strike in strikes:
            await asyncio.sleep(max(0.0, began + strike.at - loop.time()))
            striking.create_task(_strike(arena, strike))


async def _strike(arena: Arena, strike: Strike) -> None:
    await CATALOGUE[strike.fault].fault(arena, strike)
