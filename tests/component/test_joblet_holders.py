"""Holders of unique resources are dead when their session is no longer confirmed, whoever else lives."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.component.joblet_replica import World, a_fulfilment
from tests.component.joblet_stage import Stage, alive, staged, until_file, until_gone

# It does not care about being asked, and neither do those it began.
STUBBORN = (
    "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & echo $$; while :; do sleep 0.05; done"
)


# Long enough for a joblet to start again on a busy machine.
PATIENT_SECONDS = 5.0


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path, World(lease_seconds=1.5, heartbeat_seconds=0.2)) as stage:
        yield stage


async def a_running_holder(stage: Stage) -> tuple[str, int]:
    holder = a_fulfilment(1, "sh", "-c", STUBBORN, holds=("licence",))
    stage.world.assign(holder)
    await stage.world.until_phase(holder.id, "Running")
    return holder.id, int(await until_file(stage.run(100) / "stdout", "\n"))


def ended_at(stage: Stage) -> float:
    lines = (stage.data / "records.jsonl").read_text().splitlines()
    return float(next(r["monotonic"] for r in map(json.loads, lines) if r["event"] == "ended"))


async def test_a_confirmed_holder_goes_on_beyond_its_lease(stage: Stage) -> None:
    stage.world.lease_seconds = PATIENT_SECONDS
    await stage.started()
    identity, pid = await a_running_holder(stage)
    first = float((stage.data / "confirmed").read_text().split()[0])
    while time.monotonic() < first + 1:
        await stage.world.heard()
    assert alive(pid)
    assert stage.world.observed[identity][1].phase == "Running"


async def test_a_holder_dies_when_heartbeats_are_no_longer_confirmed(stage: Stage) -> None:
    await stage.started()
    identity, pid = await a_running_holder(stage)
    stage.world.confirming = False
    task = (await stage.world.until_phase(identity, "Failed")).tasks[0]
    assert task.reason == "Lost"
    assert not alive(pid)
    until = float((stage.data / "confirmed").read_text().split()[0])
    assert until <= ended_at(stage) < until + 5


async def test_a_holder_dies_in_time_also_when_its_joblet_is_dead(stage: Stage) -> None:
    joblet = await stage.started()
    _, pid = await a_running_holder(stage)
    await joblet.end()
    until = float((stage.data / "confirmed").read_text().split()[0])
    await until_gone(pid)
    await until_file(stage.run(100) / "end.json", "lost")
    assert until <= ended_at(stage) < until + 5


async def test_a_restarted_joblet_keeps_a_holder_alive(stage: Stage) -> None:
    stage.world.lease_seconds = PATIENT_SECONDS
    joblet = await stage.started()
    _, pid = await a_running_holder(stage)
    await joblet.end()
    first = float((stage.data / "confirmed").read_text().split()[0])
    await joblet.start()
    while time.monotonic() < first + 1:
        await stage.world.heard()
    assert alive(pid)


async def test_a_gap_in_the_confirmations_ends_a_holder_that_slept_through_it(stage: Stage) -> None:
    await stage.started()
    identity, pid = await a_running_holder(stage)
    shim = json.loads((stage.run(100) / "shim.json").read_text())["pid"]
    os.kill(shim, signal.SIGSTOP)
    stage.world.confirming = False
    until = float((stage.data / "confirmed").read_text().split()[0])
    while time.monotonic() < until + 0.5:
        await stage.world.heard()
    stage.world.confirming = True
    await until_file(stage.data / "confirmed")
    while float((stage.data / "confirmed").read_text().split()[0]) <= time.monotonic():
        await stage.world.heard()
    os.kill(shim, signal.SIGCONT)
    assert (await stage.world.until_phase(identity, "Failed")).tasks[0].reason == "Lost"
    assert not alive(pid)


async def test_a_holder_waits_for_a_confirmed_session(stage: Stage) -> None:
    stage.world.confirming = False
    holder = a_fulfilment(1, "true", holds=("licence",))
    other = a_fulfilment(2, "true")
    stage.world.assign(holder)
    stage.world.assign(other)
    await stage.started()
    await stage.world.until_phase(other.id, "Succeeded")
    assert not stage.run(100).exists()
    stage.world.confirming = True
    await stage.world.until_phase(holder.id, "Succeeded")


async def test_a_new_holder_waits_until_the_withdrawn_one_is_dead(stage: Stage) -> None:
    stage.world.lease_seconds = PATIENT_SECONDS
    await stage.started()
    identity, _ = await a_running_holder(stage)
    shim = json.loads((stage.run(100) / "shim.json").read_text())["pid"]
    os.kill(shim, signal.SIGSTOP)
    stage.world.withdraw(identity)
    following, other = a_fulfilment(2, "true", holds=("licence",)), a_fulfilment(3, "true")
    stage.world.assign(following)
    stage.world.assign(other)
    await stage.world.until_phase(other.id, "Succeeded")
    os.kill(shim, signal.SIGCONT)
    await stage.world.until_phase(following.id, "Succeeded")
    holders = [record for record in stage.records() if record[1] != 300]
    assert holders == [("started", 100), ("ended", 100), ("started", 200), ("ended", 200)]
