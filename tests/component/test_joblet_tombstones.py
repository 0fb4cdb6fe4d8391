"""What a restarted joblet finds in its folder: first what lives, the rest when somebody asks for it."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.joblet.attempt_records import AttemptRecords, identity_of
from controlplane.joblet.drivers.process.process_driver import ProcessDriver
from controlplane.joblet.drivers.process.rundir import End, RunDir, Spec, folder_name
from controlplane.joblet.housekeeping import raise_descriptor_limit
from controlplane.joblet.joblet_state import JobletFolder
from controlplane.model.fulfilment import Fulfilment
from tests.component.joblet_replica import a_fulfilment


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[JobletFolder]:
    folder = JobletFolder(tmp_path / "data", "boot-1")
    yield folder
    folder.close()


def a_driver(state: JobletFolder) -> ProcessDriver:
    clock = SystemClock()
    return ProcessDriver(
        state, AttemptRecords(state.path, boot="boot-1", clock=clock), {"PATH": os.defpath}, clock=clock
    )


def leave(state: JobletFolder, fulfilment: Fulfilment, end: End | None) -> RunDir:
    """What an earlier life left of the first task."""
    task = fulfilment.tasks[0]
    run = RunDir(state.path / "runs" / folder_name(fulfilment.order, task))
    run.prepare(Spec(subject=identity_of(fulfilment, task), command=("true",)))
    if end is not None:
        run.write_end(end)
    return run


async def test_an_ended_attempt_is_read_when_it_is_desired_and_not_before(state: JobletFolder) -> None:
    wanted, forgotten = a_fulfilment(1, "true"), a_fulfilment(2, "true")
    for fulfilment in (wanted, forgotten):
        leave(state, fulfilment, End(how="exited", code=7))
    driver = a_driver(state)
    driver.adopt()
    assert driver.fulfilments() == []
    driver.recall(wanted)
    assert driver.fulfilments() == [wanted.id]
    (task,) = driver.seen(wanted.id).values()
    assert (task.phase, task.exit_code) == ("Failed", 7)
    driver.close()


async def test_what_never_began_is_found_at_once(state: JobletFolder) -> None:
    begun = a_fulfilment(1, "true")
    leave(state, begun, None)
    driver = a_driver(state)
    driver.adopt()
    (task,) = driver.seen(begun.id).values()
    assert (task.phase, task.reason) == ("Failed", "Lost")
    driver.close()


async def test_an_attempt_whose_command_took_its_folder_away_is_not_started_again(state: JobletFolder) -> None:
    """Its start is on record; nothing else is left of it."""
    begun = a_fulfilment(1, "touch", str(state.path / "ran"))
    records = AttemptRecords(state.path, boot="boot-1", clock=SystemClock())
    records.append("started", identity_of(begun, begun.tasks[0]), pid=1)
    records.close()
    driver = a_driver(state)
    driver.adopt()
    driver.start(begun, begun.tasks[0])
    async with asyncio.timeout(20):
        while next(iter(driver.seen(begun.id).values())).phase != "Failed":
            await asyncio.sleep(0.01)
    (task,) = driver.seen(begun.id).values()
    assert task.reason == "Lost"
    assert not (state.path / "ran").exists()
    driver.close()


async def test_a_folder_without_a_spec_becomes_a_tombstone(state: JobletFolder) -> None:
    strange = state.path / "runs" / "an-order.job-0.0.1"
    driver = a_driver(state)
    strange.mkdir()
    (state.path / "runs" / "a-link").symlink_to("/")
    driver.adopt()
    assert driver.fulfilments() == []
    assert set(driver._kept._due) == {strange, state.path / "runs" / "a-link"}
    driver.close()


async def test_a_spec_that_names_another_attempt_speaks_for_nobody(state: JobletFolder) -> None:
    """A command wrote it: it must not stand in for its neighbour."""
    neighbour, forger = a_fulfilment(1, "true"), a_fulfilment(2, "true")
    true, forged = leave(state, neighbour, None), leave(state, forger, None)
    (forged.path / "spec.json").write_bytes((true.path / "spec.json").read_bytes())
    driver = a_driver(state)
    driver.adopt()
    assert driver.fulfilments() == [neighbour.id]
    driver.close()


async def test_a_start_without_room_is_tried_again_and_then_evicted(
    state: JobletFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = a_fulfilment(1, "true")
    driver = a_driver(state)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        driver.start(wanted, wanted.tasks[0])
        (attempt,) = driver._attempts[wanted.id].values()
        assert (attempt.observed.phase, attempt.waits_for_room) == ("Starting", True)
        attempt.give_up_at = 0.0
        attempt.cancel_timer()
        driver._starter.begin(attempt, wanted)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (attempt.observed.phase, attempt.observed.reason) == ("Failed", "Evicted")
    assert "Too many open files" in attempt.observed.message
    assert not attempt.run.path.exists()
    driver.close()


async def test_a_stop_ends_an_attempt_that_waits_for_room(state: JobletFolder) -> None:
    wanted = a_fulfilment(1, "true")
    driver = a_driver(state)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        driver.start(wanted, wanted.tasks[0])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    driver.stop(wanted.id, wanted.tasks[0], "Preempted")
    (task,) = driver.seen(wanted.id).values()
    assert (task.phase, task.reason) == ("Cancelled", "Preempted")
    driver.close()


def test_a_joblet_takes_all_descriptors_that_it_may_have() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))
    try:
        assert raise_descriptor_limit() == before[1] // 2
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
