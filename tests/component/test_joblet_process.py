"""The process driver with real joblets, real commands, and a replica that is real up to its store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane.joblet.settings import JobletSettings
from tests.component.joblet_replica import ORDER, Replica, World, a_fulfilment

RUN = f"{ORDER}.job-0"


class Joblet:
    """A joblet in a process of its own."""

    def __init__(self, settings: JobletSettings, folder: Path) -> None:
        self._file = folder / "settings.json"
        self._file.write_bytes(msgspec.json.encode(settings))
        self._log = folder / "joblet.log"
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "controlplane.joblet", str(self._file), stderr=log
            )

    async def end(self, number: int = signal.SIGKILL) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.process.wait()

    def said(self) -> str:
        return self._log.read_text()


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.world = World()
        self.replicas: list[Replica] = []
        self.joblets: list[Joblet] = []

    async def a_replica(self) -> Replica:
        replica = Replica(f"replica-{len(self.replicas) + 1}", self.world)
        await replica.start()
        self.replicas.append(replica)
        return replica

    def a_joblet(self, **more: Any) -> Joblet:
        endpoints = tuple(replica.endpoint for replica in self.replicas)
        settings: dict[str, Any] = {"target": "here", "endpoints": endpoints, "data_dir": str(self.data), **more}
        joblet = Joblet(JobletSettings(**settings), self.folder)
        self.joblets.append(joblet)
        return joblet

    async def close(self) -> None:
        for joblet in self.joblets:
            if joblet.process is not None:
                await joblet.end()
        for shim in self.data.glob("runs/*/shim.json"):
            kill_if_alive(json.loads(shim.read_text())["pid"])
        for replica in self.replicas:
            await replica.stop()

    def run(self, index: int, attempt: int = 1) -> Path:
        return self.data / "runs" / f"{RUN}.{index}.{attempt}"

    def records(self) -> list[tuple[str, int]]:
        lines = (self.data / "records.jsonl").read_text().splitlines()
        return [(record["event"], record["index"]) for record in map(json.loads, lines)]


def kill_if_alive(pid: int) -> None:
    """The shim of a test that failed; its command dies with it."""
    try:
        if b"shim" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return


async def until_file(path: Path, text: str = "", seconds: float = 20.0) -> str:
    async with asyncio.timeout(seconds):
        while True:
            if path.exists() and text in (found := path.read_text()) and found:
                return found
            await asyncio.sleep(0.01)


async def until_gone(pid: int, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while alive(pid):
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path)
    await stage.a_replica()
    try:
        yield stage
    finally:
        await stage.close()


async def started(stage: Stage, **more: Any) -> Joblet:
    joblet = stage.a_joblet(**more)
    await joblet.start()
    return joblet


async def test_a_command_runs_and_every_step_is_reported(stage: Stage) -> None:
    work = a_fulfilment(1, "sh", "-c", "echo out; echo err >&2")
    stage.world.assign(work)
    await started(stage)
    end = await stage.world.until_phase(work.id, "Succeeded")
    assert stage.world.phases(work.id)[0] == "Starting"
    assert (end.tasks[0].exit_code, end.tasks[0].reason) == (0, "")
    assert end.tasks[0].started
    assert end.tasks[0].finished
    assert (stage.run(100) / "stdout").read_text() == "out\n"
    assert (stage.run(100) / "stderr").read_text() == "err\n"
    assert stage.records() == [("started", 100), ("ended", 100)]
