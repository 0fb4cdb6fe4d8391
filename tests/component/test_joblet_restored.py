"""A joblet whose control plane was restored: it stops what it runs before it comes back, and repeats no attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from controlplane.model.fulfilment import Fulfilment, TaskRef
from tests.component.joblet_replica import World, a_fulfilment
from tests.component.joblet_stage import Joblet, Stage, alive, staged, until_file

PATIENCE_SECONDS = 60.0


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    world = World()
    world.cluster = "old"
    async with staged(tmp_path, world) as stage:
        yield stage


def attempt(number: int, work: Fulfilment, identity: str) -> Fulfilment:
    """The same task placed as another fulfilment."""
    (task,) = work.tasks
    again = TaskRef(job=task.job, index=task.index, attempt=number)
    return msgspec.structs.replace(work, id=identity, tasks=(again,))


async def a_running_command(stage: Stage) -> tuple[Fulfilment, int]:
    work = a_fulfilment(1, "sleep", "600")
    stage.world.assign(work)
    await stage.world.until_phase(work.id, "Running", PATIENCE_SECONDS)
    shim = await until_file(stage.run(100) / "shim.json", "}", PATIENCE_SECONDS)
    return work, msgspec.json.decode(shim)["pid"]


async def restore(stage: Stage, *kept: Fulfilment) -> None:
    """What was desired in the backup is desired again; nothing else is known."""
    world = stage.world
    world.cluster, world.restored, world.session = "new", True, ""
    world.desired = {work.id: work for work in kept}
    world.observed.clear()
    await stage.replicas[0].stop()
    stage.replicas.clear()
    await stage.a_replica()


async def come_back(stage: Stage, joblet: Joblet, *kept: Fulfilment) -> None:
    """The joblet was killed with the rest; its commands live on."""
    await joblet.end()
    await restore(stage, *kept)
    await stage.started()


async def test_what_ran_is_dead_before_the_joblet_opens_a_session(stage: Stage) -> None:
    joblet = await stage.started()
    _, pid = await a_running_command(stage)
    await come_back(stage, joblet)
    assert alive(pid), "its command outlives a joblet"
    await stage.world.until(lambda: any(hello.cluster == "new" for hello in stage.world.hellos), PATIENCE_SECONDS)
    assert not alive(pid)
    old, new = (hello for hello in stage.world.hellos if hello.cluster)
    assert (old.cluster, new.cluster, new.known_attempt, new.highest_revision) == ("old", "new", 1, 0)


async def test_an_attempt_from_before_the_restore_is_never_started_again(stage: Stage) -> None:
    joblet = await stage.started()
    work, _ = await a_running_command(stage)
    repeated = attempt(1, work, "01HYYYYYYYYYYYYYYYYYYYAGAIN")
    elsewhere = a_fulfilment(2, "true")
    later = attempt(2, a_fulfilment(3, "true"), "01HYYYYYYYYYYYYYYYYYYYLATER")
    await come_back(stage, joblet, repeated, elsewhere, later)
    for refused in (repeated, elsewhere):
        task = (await stage.world.until_phase(refused.id, "Failed", PATIENCE_SECONDS)).tasks[0]
        assert task.reason == "Lost"
    await stage.world.until_phase(later.id, "Succeeded", PATIENCE_SECONDS)
    started = [index for event, index in stage.records() if event == "started"]
    assert started == [100, 300], "attempt 1 may have been started by anybody, attempt 2 by nobody"


async def test_the_folder_of_a_joblet_can_go_to_a_new_control_plane(stage: Stage) -> None:
    joblet = await stage.started()
    await a_running_command(stage)
    await joblet.end()
    work = a_fulfilment(2, "true")
    await restore(stage, work)
    stage.world.restored = False
    await stage.started()
    await stage.world.until_phase(work.id, "Succeeded", PATIENCE_SECONDS)
