"""How a joblet and its replicas find, leave and understand each other; the work is simulated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.component.joblet_replica import World, a_fulfilment
from tests.component.joblet_stage import Stage, staged


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as stage:
        yield stage


async def test_simulated_work_succeeds_and_is_reported_in_order(stage: Stage) -> None:
    work = a_fulfilment(1)
    stage.world.assign(work)
    await stage.started(driver="simulated")
    end = await stage.world.until_phase(work.id, "Succeeded")
    assert stage.world.phases(work.id) == ["Starting", "Running", "Succeeded"]
    assert end.tasks[0].exit_code == 0
    assert stage.records() == [("started", 100), ("ended", 100)]


async def test_a_task_chooses_how_its_simulation_ends(stage: Stage) -> None:
    work = a_fulfilment(1, environment={"SIMULATE_DURATION": "0", "SIMULATE_EXIT_CODE": "3"})
    stage.world.assign(work)
    await stage.started(driver="simulated", duration=1000)
    task = (await stage.world.until_phase(work.id, "Failed")).tasks[0]
    assert (task.exit_code, task.reason) == (3, "Failed")
    assert stage.world.phases(work.id) == ["Starting", "Failed"]


async def test_simulated_work_can_be_stopped_and_withdrawn(stage: Stage) -> None:
    first, second = a_fulfilment(1), a_fulfilment(2)
    stage.world.assign(first)
    stage.world.assign(second)
    await stage.started(driver="simulated", duration=1000)
    await stage.world.until_phase(second.id, "Running")
    stage.world.withdraw(second.id)
    stage.world.assign(msgspec.structs.replace(first, want="stop", reason="Cancelled"))
    assert (await stage.world.until_phase(first.id, "Cancelled")).tasks[0].reason == "Cancelled"
    assert sorted(stage.records()) == [("ended", 100), ("ended", 200), ("started", 100), ("started", 200)]


async def test_a_simulated_holder_ends_when_it_is_no_longer_confirmed(tmp_path: Path) -> None:
    stage = Stage(tmp_path, World(lease_seconds=1.0, heartbeat_seconds=0.2))
    await stage.a_replica()
    try:
        holder = a_fulfilment(1, holds=("licence",))
        stage.world.assign(holder)
        await stage.started(driver="simulated", duration=1000)
        await stage.world.until_phase(holder.id, "Running")
        stage.world.confirming = False
        assert (await stage.world.until_phase(holder.id, "Failed")).tasks[0].reason == "Lost"
    finally:
        await stage.close()


async def test_many_simulated_targets_share_one_process(stage: Stage) -> None:
    stage.world.secret = None
    stage.world.shared = True
    await stage.started(driver="simulated", count=30, target="edge")
    await stage.world.until(lambda: len({hello.target for hello in stage.world.hellos}) == 30)
    assert "edge-29" in stage.world.targets


async def test_when_a_replica_dies_the_next_one_gets_the_same_session(stage: Stage) -> None:
    await stage.a_replica()
    work = a_fulfilment(1)
    stage.world.assign(work)
    await stage.started(driver="simulated", duration=1)
    await stage.world.until_phase(work.id, "Running")
    serving = next(replica for replica in stage.replicas if replica.serving())
    await serving.stop()
    await stage.world.until_phase(work.id, "Succeeded")
    first, second = stage.world.hellos[0], stage.world.hellos[-1]
    assert (first.session, second.session) == ("", "session-1")
    assert second.highest_revision > 1
    assert first.instance == second.instance


async def test_a_silent_replica_is_left(tmp_path: Path) -> None:
    stage = Stage(tmp_path, World(lease_seconds=1.5, heartbeat_seconds=0.2))
    await stage.a_replica()
    await stage.a_replica()
    try:
        await stage.started(driver="simulated")
        await stage.world.until(lambda: len(stage.world.outputs) == 1)
        stage.world.speaking = False
        await stage.world.until(lambda: len(stage.world.hellos) >= 2)
        assert stage.world.hellos[1].session == "session-1"
    finally:
        await stage.close()


async def test_another_joblet_waits_until_the_target_is_free(stage: Stage) -> None:
    stage.world.secret = "of somebody else"
    await stage.started(driver="simulated")
    await stage.world.until(lambda: len(stage.world.hellos) >= 2)
    assert stage.world.session == ""
    stage.world.secret = None
    await stage.world.until(lambda: stage.world.session != "")


async def test_a_report_under_an_old_session_makes_the_joblet_take_a_new_one(stage: Stage) -> None:
    await stage.started(driver="simulated", duration=0.1)
    await stage.world.until(lambda: len(stage.world.outputs) == 1)
    stage.world.session = "somebody moved on"
    work = a_fulfilment(1)
    stage.world.assign(work)
    await stage.world.until_phase(work.id, "Succeeded")
    assert stage.world.hellos[-1].session == ""
    assert {observed.session for observed in stage.world.history} == {"session-2"}


@pytest.mark.parametrize("answer", ["Unavailable", "OutcomeUnknown", "lost", "Conflict"])
async def test_whatever_happens_to_a_report_the_chain_goes_on(stage: Stage, answer: str) -> None:
    stage.world.answers = [answer, "", answer, "", answer]
    work = a_fulfilment(1)
    stage.world.assign(work)
    await stage.started(driver="simulated", duration=0.5)
    await stage.world.until_phase(work.id, "Succeeded")
    assert stage.world.phases(work.id) == ["Starting", "Running", "Succeeded"]
    assert stage.records() == [("started", 100), ("ended", 100)]


async def test_a_replica_that_never_answers_a_report_is_left(tmp_path: Path) -> None:
    stage = Stage(tmp_path, World(lease_seconds=1.0, heartbeat_seconds=0.2))
    await stage.a_replica()
    try:
        stage.world.answers = ["deaf"]
        work = a_fulfilment(1)
        stage.world.assign(work)
        await stage.started(driver="simulated")
        await stage.world.until_phase(work.id, "Succeeded")
        assert [hello.session for hello in stage.world.hellos] == ["", "session-1"]
    finally:
        await stage.close()


async def test_what_is_not_found_any_more_is_dropped(stage: Stage) -> None:
    await stage.started(driver="simulated", duration=0.3)
    work = a_fulfilment(1)
    stage.world.assign(work)
    await stage.world.until_phase(work.id, "Running")
    stage.world.forget(work.id)
    await stage.world.until(lambda: stage.world.received[-1].phase == "Succeeded")
    following = a_fulfilment(2)
    stage.world.assign(following)
    await stage.world.until_phase(following.id, "Succeeded")
    assert [observed.phase for observed in stage.world.received if observed.id == work.id][-1] == "Succeeded"


async def test_what_vanished_while_the_joblet_was_away_is_stopped_after_the_full_list(stage: Stage) -> None:
    await stage.a_replica()
    await stage.started(driver="simulated", duration=1000)
    gone, kept = a_fulfilment(1), a_fulfilment(2)
    stage.world.assign(gone)
    stage.world.assign(kept)
    await stage.world.until_phase(kept.id, "Running")
    await stage.world.until_phase(gone.id, "Running")
    stage.world.forget(gone.id)
    await next(replica for replica in stage.replicas if replica.serving()).stop()
    await stage.world.until(lambda: len(stage.world.hellos) == 2)
    stage.world.assign(msgspec.structs.replace(kept, want="stop", reason="Cancelled"))
    await stage.world.until_phase(kept.id, "Cancelled")
    assert ("ended", 100) in stage.records()


async def test_what_a_killed_simulation_had_begun_is_lost(stage: Stage) -> None:
    work = a_fulfilment(1)
    stage.world.assign(work)
    joblet = await stage.started(driver="simulated", duration=1000)
    await stage.world.until_phase(work.id, "Running")
    await joblet.end()
    await joblet.start()
    assert (await stage.world.until_phase(work.id, "Failed")).tasks[0].reason == "Lost"
