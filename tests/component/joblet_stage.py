"""A joblet in a process of its own, the replicas it talks to, and its folder."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from controlplane.joblet.drivers.process.process_search import kill_marked
from controlplane.joblet.joblet_settings import JobletSettings
from tests.component.joblet_replica import ORDER, Replica, World

RUN = f"{ORDER}.job-0"


class Joblet:
    """A joblet in a process of its own."""

    def __init__(self, settings: JobletSettings, folder: Path) -> None:
        self._file = folder / "settings.json"
        self._file.write_bytes(msgspec.json.encode(settings))
        self._log = folder / "joblet.log"
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *through: str) -> None:
        """`through`: a command that becomes the joblet, with other rights say."""
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *through, sys.executable, "-m", "controlplane.joblet", str(self._file), stderr=log
            )

    async def end(self, number: int = signal.SIGKILL) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.process.wait()

    def said(self) -> str:
        return self._log.read_text()


class Stage:
    def __init__(self, folder: Path, world: World | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.world = world or World()
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

    async def started(self, **more: Any) -> Joblet:
        joblet = self.a_joblet(**more)
        await joblet.start()
        return joblet

    async def close(self) -> None:
        for joblet in self.joblets:
            if joblet.process is not None:
                await joblet.end()
        for shim in self.data.glob("runs/*/shim.json"):
            kill_if_alive(json.loads(shim.read_text())["pid"])
            while kill_marked(f"CONTROLPLANE_PROGRESS={shim.parent / 'progress'}"):
                await asyncio.sleep(0.01)
        for replica in self.replicas:
            await replica.stop()

    def run(self, index: int, attempt: int = 1) -> Path:
        return self.data / "runs" / f"{RUN}.{index}.{attempt}"

    def records(self) -> list[tuple[str, int]]:
        lines = content(self.data / "records.jsonl").splitlines()
        return [(record["event"], record["index"]) for record in map(json.loads, lines)]


@asynccontextmanager
async def staged(folder: Path, world: World | None = None) -> AsyncIterator[Stage]:
    """With one replica; what was started is ended with it."""
    stage = Stage(folder, world)
    try:
        await stage.a_replica()
        yield stage
    finally:
        await stage.close()


def kill_if_alive(pid: int) -> None:
    """The shim of a test that failed, or that ended while its command ran."""
    try:
        if b"shim" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return


async def until_file(path: Path, text: str = "", seconds: float = 20.0) -> str:
    """Its content, once it is there and has the text in it."""
    async with asyncio.timeout(seconds):
        while not (found := content(path)) or text not in found:
            await asyncio.sleep(0.01)
        return found


async def until_gone(pid: int, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while alive(pid):
            await asyncio.sleep(0.01)


def content(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
