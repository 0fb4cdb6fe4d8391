"""A joblet that comes back to a world that went on: it stops what is no longer its own, and says when that is dead."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.wire.v1 import targets_pb2
from tests.component.joblet_replica import World, a_fulfilment
from tests.component.joblet_stage import Stage, alive, staged, until_file, until_gone


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path, World(heartbeat_seconds=2.0)) as stage:
        yield stage


def pid_of(stage: Stage, index: int) -> int:
    return int(json.loads((stage.run(index) / "shim.json").read_text())["pid"])


async def test_a_joblet_says_that_nothing_is_left_over_only_when_its_old_work_is_dead(stage: Stage) -> None:
    old, kept = a_fulfilment(1, "sleep", "600"), a_fulfilment(2, "sleep", "600")
    stage.world.assign(old)
    stage.world.assign(kept)
    joblet = await stage.started()
    await stage.world.until_phase(old.id, "Running")
    await stage.world.until_phase(kept.id, "Running")
    await joblet.end()
    stage.world.forget(old.id)
    stage.world.leftovers.clear()
    await joblet.start()
    dead: list[bool] = []

    def told_nothing_left() -> bool:
        if 0 in stage.world.leftovers and not dead:
            dead.append(stage.records().count(("ended", 100)) == 1)
        return bool(dead)

    await stage.world.until(told_nothing_left)
    assert stage.world.hellos[-1].leftovers == 2
    assert dead == [True]
    assert alive(pid_of(stage, 200)), "what is still desired goes on"
    # It does not wait for its next heartbeats with that.
    assert stage.world.leftovers[-1] == 0
    assert len(stage.world.leftovers) <= 3


async def test_a_new_joblet_has_nothing_left_over(stage: Stage) -> None:
    await stage.started()
    await stage.world.until(lambda: bool(stage.world.leftovers))
    assert stage.world.hellos[0].leftovers == 0


async def delete_target(stage: Stage) -> None:
    """Returns when the joblet knows, and waits for the target to be made again."""
    work = a_fulfilment(1, "sleep", "600")
    stage.world.assign(work)
    await stage.world.until_phase(work.id, "Running")
    pid = pid_of(stage, 100)
    stage.world.removed = True
    stage.world.forget(work.id)
    stage.world.targets.clear()
    for output in stage.world.outputs:
        output.put_nowait(None)
    await until_gone(pid)
    await until_file(stage.folder / "joblet.log", "the joblet is idle until it is created again")
    await stage.world.until(lambda: bool(stage.world.watched))


async def test_the_joblet_of_a_deleted_target_kills_what_it_runs_and_does_not_make_it_again(stage: Stage) -> None:
    joblet = await stage.started()
    await delete_target(stage)
    assert joblet.process is not None
    assert joblet.process.returncode is None
    assert stage.world.targets == {}
    assert len(stage.world.hellos) == 2


async def test_the_joblet_of_a_deleted_target_comes_back_when_somebody_else_has_made_it_again(stage: Stage) -> None:
    await stage.started()
    await delete_target(stage)
    assert len(stage.world.hellos) == 2
    stage.world.removed, stage.world.session = False, ""
    stage.world.targets["here"] = targets_pb2.Target(name="here")
    await stage.world.notify()
    await stage.world.until(lambda: len(stage.world.hellos) == 3)
    assert stage.world.hellos[-1].session == ""
    work = a_fulfilment(2, "true")
    stage.world.assign(work)
    await stage.world.until_phase(work.id, "Succeeded")
