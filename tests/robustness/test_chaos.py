"""Chaos: faults by chance, under clients that cancel and repeat. Afterwards nothing is lost, stuck or left over.

`CONTROLPLANE_CHAOS_SEED`, `CONTROLPLANE_CHAOS_SECONDS` and `CONTROLPLANE_CHAOS_KINDS` choose what the first test runs.
A failure prints its seed, and of how many kinds of faults that seed chose.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.model.fulfilment import Ended
from controlplane.store import keys
from controlplane.verify import history
from controlplane.verify.gathering import history_reader
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.arena import Arena, Form, an_arena
from tests.robustness.chaos import CATALOGUE, form_of, has_wishes, schedule, unleash
from tests.robustness.crowd import Crowd, a_crowd, errand, furnish
from tests.robustness.faults import Strike
from tests.robustness.verifying import verify
from tests.robustness.world import World

SEED = int(os.environ.get("CONTROLPLANE_CHAOS_SEED", "1"))
SECONDS = float(os.environ.get("CONTROLPLANE_CHAOS_SECONDS", "60"))
ALL = len(CATALOGUE)
KINDS = int(os.environ.get("CONTROLPLANE_CHAOS_KINDS", str(ALL)))
# Seeds that failed once, with how many kinds of faults there were then, and what they found. They stay.
FAILED: dict[tuple[int, int], str] = {
    (1, 18): "a cancelled order went back to Running: a placement did not compare its order",
    (3, 18): "placements of a cancelled order were never ended",
    (15, 20): "a replica that was asked to stop while its candidacy ended stood for election again",
}
MANY = 10
LONG_SECONDS = 180.0
# From the last fault to the end of every order.
SETTLED_SECONDS = 60.0
_SHOWN = 10


def new_seeds() -> list[int]:
    """Others in each run, and the same in all processes of one."""
    chance = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID") or os.urandom(8))
    return [chance.randrange(10**6) for _ in range(MANY)]


class Settled:
    """What has to be true soon after the last fault, and what is still missing."""

    def __init__(self, world: World, crowd: Crowd) -> None:
        self._witness = world.witness
        self._world = world
        self._crowd = crowd

    @property
    def open(self) -> list[str]:
        return sorted(order for order in self._crowd.acknowledged if not self._witness.finals({order}))

    @property
    def left_over(self) -> list[str]:
        fronts = (f"{keys.ROOT}desired/", f"{keys.ROOT}claims/")
        return sorted(key for key in self._witness.values if key.startswith(fronts))

    @property
    def holds(self) -> bool:
        return not self.left_over and not self.open

    def missing(self) -> str:
        phases = Counter(self._witness.phases.get(order, "Pending") for order in self.open)
        lines = [
            f"{len(self.open)} of {len(self._crowd.acknowledged)} acknowledged orders are not final: {dict(phases)}"
        ]
        lines += [
            f"  {order} {self._witness.phases.get(order, 'Pending')} {self._crowd.errands[order]}"
            for order in self.open[:_SHOWN]
        ]
        lines.append(f"{len(self.left_over)} keys are left in desired/ and claims/:")
        lines += [f"  {key} {self._witness.values[key].value.decode()[:600]}" for key in self.left_over[:_SHOWN]]
        running = [replica.name for replica in self._world.replicas.values() if replica.running]
        lines.append(f"targets {self._witness.targets}, replicas {running}, leader {self._witness.leader}")
        return "\n".join(lines)


async def broken(world: World, acknowledged: set[str]) -> list[str]:
    """What is wrong by the whole history, by the joblets' records, and by the word of `cpctl verify`."""
    caches = await promises.compare_caches(world)
    await world.witness.caught_up()
    checks = promises.listened(world)
    await history_reader.settle(world.witness.store, checks.suspicions, SystemClock())
    checks.report_suspicions()
    found = []
    for verdict in (*promises.judge(world, acknowledged, checks), *caches):
        if not verdict.ok:
            shown = "; ".join(f"{it.key}@{it.revision} {it.why}" for it in verdict.violations[:5])
            found.append(f"{verdict.promise} ({verdict.checked} checked): {shown} {verdict.why}")
    _, said = await verify(world, acknowledged)
    return found + [f"cpctl verify: {name} {it['violations'][:5]}" for name, it in said.items() if it["ok"] is False]


async def settle(arena: Arena, crowd: Crowd) -> list[str]:
    """What is left a minute after the last fault; nothing when all is as it has to be, at once."""
    world, settled = arena.world, Settled(arena.world, crowd)
    give_up = asyncio.get_running_loop().time() + SETTLED_SECONDS
    try:
        await crowd.leave(SETTLED_SECONDS)
        left = max(0.0, give_up - asyncio.get_running_loop().time())
        await world.witness.until(lambda: settled.holds, "everything is settled", seconds=left)
        await world.ready()
    except AssertionError as error:
        return [str(error), settled.missing()]
    return []


def decisions(world: World) -> Counter[str]:
    """What became of attempts that did not end by themselves: how many were moved, preempted, lost and so on."""
    return Counter(
        task.reason
        for _, events in history.by_revision(world.witness.changes)
        for event in events
        if isinstance(event.object, Ended) and event.is_new
        for task in event.object.tasks
        if task.reason
    )


def shown(name: str, strikes: list[Strike], wrong: list[str], folder: Path) -> str:
    lines = [f"{name}, schedule:", *(f"  {strike}" for strike in strikes), "what is wrong:", *wrong]
    return "\n".join([*lines, f"everything is kept in {folder}"])


async def run(folder: Path, seed: int, seconds: float, kinds: int = ALL) -> str:
    strikes, form = schedule(seed, seconds, kinds), form_of(seed, kinds)
    name = f"seed {seed} of {kinds} kinds, {form}"
    async with an_arena(folder, form) as arena:
        await furnish(arena.world.client)
        errands = partial(errand, seed, wishes=has_wishes(kinds))
        async with a_crowd(arena.world.endpoints, errands, arena.world.witness.finals) as crowd:
            try:
                await unleash(arena, strikes)
            except ExceptionGroup as failures:
                wrong = [f"a fault could not be made or mended: {failure!r}" for failure in failures.exceptions]
                raise AssertionError(shown(name, strikes, wrong, folder)) from failures
            last = asyncio.get_running_loop().time()
            wrong = await settle(arena, crowd)
            took = asyncio.get_running_loop().time() - last
            wrong = wrong or [*crowd.complaints, *await broken(arena.world, crowd.acknowledged)]
        assert not wrong, shown(name, strikes, wrong, folder)
        phases = Counter(arena.world.witness.phases.get(order, "") for order in crowd.acknowledged)
        told = f"{len(strikes)} faults, {len(arena.world.witness.terms)} terms, {dict(phases)}"
        return f"{name}: {told}, {dict(decisions(arena.world))}, settled {took:.1f} s after the last"


@pytest.mark.timeout(SECONDS + 400)
async def test_after_a_minute_of_chaos_nothing_is_lost_stuck_or_left_over(tmp_path: Path, tell: Tell) -> None:
    tell(await run(tmp_path, SEED, SECONDS, KINDS))


@pytest.mark.long
@pytest.mark.timeout(LONG_SECONDS + 400)
@pytest.mark.parametrize(("seed", "kinds"), [*FAILED, *((seed, ALL) for seed in new_seeds())])
async def test_after_minutes_of_chaos_nothing_is_lost_stuck_or_left_over(
    tmp_path: Path, tell: Tell, seed: int, kinds: int
) -> None:
    tell(await run(tmp_path, seed, LONG_SECONDS, kinds))


def test_a_seed_gives_the_same_schedule_and_the_same_errands() -> None:
    assert schedule(7, 60.0) == schedule(7, 60.0) != schedule(8, 60.0)
    first = [(round(strike.at, 2), strike.fault) for strike in schedule(1, 60.0, kinds=18)][:3]
    assert first == [
        (3.0, "revoke the leader's lease"),
        (4.36, "refuse a replica's connections to etcd"),
        (6.79, "kill replica"),
    ], "the seeds that are kept mean what they meant"
    assert [errand(7, number) for number in range(50)] == [errand(7, number) for number in range(50)]


def test_seeds_that_are_kept_run_in_the_arena_and_with_the_clients_of_then() -> None:
    assert {form_of(seed, 20) for seed in range(MANY)} == {Form()}
    assert not has_wishes(20)
    assert has_wishes(ALL)
    for number in range(400):
        with_wishes, without = errand(1, number), errand(1, number, wishes=False)
        kept = tuple(deed for deed in with_wishes.deeds if deed.deed not in ("move", "cancel task"))
        assert replace(with_wishes, deeds=kept) == without


def test_many_seeds_strike_with_every_fault_of_the_catalogue_in_every_form_of_arena() -> None:
    struck = {strike.fault for seed in range(MANY) for strike in schedule(seed, LONG_SECONDS)}
    assert struck == set(CATALOGUE)
    assert len({form_of(seed) for seed in range(MANY)}) == 4
    assert all(strike.at + strike.lasts <= 60.0 for strike in schedule(SEED, 60.0)), "none is left at the end"


def test_a_fault_strikes_only_where_the_arena_has_what_it_meets() -> None:
    for seed in range(MANY):
        form = form_of(seed)
        assert all(form.offers(CATALOGUE[strike.fault].needs) for strike in schedule(seed, LONG_SECONDS))


def test_half_of_the_orders_need_a_unique_resource() -> None:
    errands = [errand(SEED, number) for number in range(400)]
    assert sum(bool(it.unique) for it in errands) == 200
    deeds = {deed.deed for it in errands for deed in it.deeds}
    assert deeds == {"cancel", "repeat", "pause", "resume", "move", "cancel task"}
