"""The supervisor of an embedded control plane: starts its processes, restarts dead processes, stops all in order.

The supervisor's process holds the folder's lock. Every start of a process rewrites `up.json` and `processes.json`. A
supervisor stops its processes however it ends, except by SIGKILL; then the next `up` or `down` finds the rest by
`processes.json`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from controlplane.aio import processes
from controlplane.aio.clock import Clock
from controlplane.aio.trimming import trim
from controlplane.model.errors import Unavailable
from controlplane.standalone import folder_tls, recorded_processes
from controlplane.standalone import layout as files
from controlplane.standalone.embedded_etcd import HistoryLimit, is_healthy
from controlplane.standalone.layout import Layout
from controlplane.standalone.process_plan import PYTHON, ProcessPlan, ProcessSpec

START_SECONDS = 90.0
MOST_LOG_BYTES = 16 << 20
_TRIM_SECONDS = 60.0
_DEATHS_AT_START = 3
_SHORT_LIFE_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
_RESTART_SECONDS = 0.05
_RESTART_AGAIN_SECONDS = 0.8

Tell = Callable[[str], None]


@dataclass
class PartLife:
    """The current process of one part, and how often the part died."""

    process: asyncio.subprocess.Process | None = None
    since: float = 0.0
    deaths: int = 0


class Supervisor:
    def __init__(self, layout: Layout, plan: ProcessPlan, *, clock: Clock, tell: Tell) -> None:
        self._layout = layout
        self._plan = plan
        self._clock = clock
        self._tell = tell
        self._lives = {part.name: PartLife() for part in plan.parts}
        self._stop = asyncio.Event()
        self._failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._ready = False

    async def run(self, when_ready: Callable[[], None]) -> None:
        """Runs until a signal; Unavailable when the start failed. No process is left running either way."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop.set)
        keepers = [asyncio.create_task(keep_logs_small(self._layout.logs, self._clock))]
        try:
            if await self._start(keepers):
                self._ready = True
                when_ready()
                history = HistoryLimit(self._plan.etcd_url, self._clock, self._tell, tls=self._plan.etcd_files)
                keepers.append(asyncio.create_task(history.keep_short()))
                if self._plan.tls is not None:
                    renewing = folder_tls.keep_renewed(self._plan.tls, self._clock, self._tell)
                    keepers.append(asyncio.create_task(renewing))
                await self._stop.wait()
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
            await asyncio.shield(asyncio.to_thread(self._stop_all))

    async def _start(self, keepers: list[asyncio.Task[None]]) -> bool:
        """Whether the control plane became ready; False when a signal came first."""
        self._record()
        ready = asyncio.create_task(self._bring_up(keepers))
        stop = asyncio.create_task(self._stop.wait())
        try:
            waiting: set[asyncio.Future[Any]] = {ready, stop, self._failed}
            await asyncio.wait(waiting, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                raise Unavailable(self._failed.result())
            if not ready.done() and not stop.done():
                raise Unavailable(f"not ready after {START_SECONDS:g} s; the logs are in {self._layout.logs}")
            return not stop.done()
        finally:
            for task in (ready, stop):
                task.cancel()
            await asyncio.gather(ready, stop, return_exceptions=True)

    async def _bring_up(self, keepers: list[asyncio.Task[None]]) -> None:
        """Starts etcd first: replicas and joblets that cannot reach etcd would only die and be restarted."""
        for part in self._plan.parts:
            await self._spawn(part)
            keepers.append(asyncio.create_task(self._keep(part)))
            if part.group == "etcd":
                while not await asyncio.to_thread(is_healthy, self._plan.etcd_url, self._plan.etcd_files):
                    await self._clock.sleep(_PAUSE_SECONDS)
                self._layout.note_etcd(self._plan.etcd_version)
                recording = asyncio.create_task(self._record_token())
        await recording
        await self._wait_ready()

    async def _record_token(self) -> None:
        """Writes the folder's token into etcd, while the replicas start."""
        if self._plan.token_file:
            argv = (*PYTHON, "controlplane.standalone.first_access", str(self._layout.folder), self._plan.etcd_url)
            await self._ask(argv, self._layout.log("first-access"), "the folder's token cannot be recorded in etcd")

    async def _wait_ready(self) -> None:
        argv = (*PYTHON, "controlplane.standalone.wait_ready", str(self._layout.folder))
        await self._ask(argv, self._layout.log("readiness"), "the check of readiness failed")

    async def _ask(self, argv: Sequence[str], log: Path, failure: str) -> None:
        """Runs a child to its end, and tells what it prints; the start has failed when the child fails."""
        with log.open("wb") as errors:
            asking = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=errors,
                start_new_session=True,
            )  # fmt: skip
        try:
            assert asking.stdout is not None
            async for line in asking.stdout:
                self._tell(line.decode(errors="replace").rstrip())
            if await asking.wait() != 0 and not self._failed.done():
                self._failed.set_result(f"{failure}:\n{files.tail(log)}")
        finally:
            if asking.returncode is None:
                asking.kill()
                await asking.wait()

    async def _keep(self, part: ProcessSpec) -> None:
        life = self._lives[part.name]
        while True:
            assert life.process is not None
            code = await life.process.wait()
            lived = self._clock.monotonic() - life.since
            life.deaths += 1
            self._tell(f"{part.name} ended ({_ending(code)}) after {lived:.1f} s; starting it again")
            if not self._ready and life.deaths >= _DEATHS_AT_START and not self._failed.done():
                log = self._layout.log(part.name)
                reason = f"{part.name} died {life.deaths} times ({_ending(code)}); the end of {log}:\n{files.tail(log)}"
                self._failed.set_result(reason)
            await self._clock.sleep(_RESTART_SECONDS if lived > _SHORT_LIFE_SECONDS else _RESTART_AGAIN_SECONDS)
            await self._spawn(part)

    async def _spawn(self, part: ProcessSpec) -> None:
        life = self._lives[part.name]
        with self._layout.log(part.name).open("ab") as log:
            life.process = await asyncio.create_subprocess_exec(
                *part.argv, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        life.since = self._clock.monotonic()
        self._publish()

    def _publish(self) -> None:
        self._record()
        files.write_json(self._layout.up_json, self._plan.up_json(self._pids()))

    def _pids(self) -> dict[str, int]:
        return {name: life.process.pid for name, life in self._lives.items() if life.process is not None}

    def _record(self) -> None:
        pids = self._pids()
        parts = {name: process for name, pid in pids.items() if (process := processes.of(pid)) is not None}
        record = recorded_processes.ProcessRecord(supervisor=processes.of(os.getpid()), parts=parts)
        files.write_json(self._layout.processes_json, msgspec.to_builtins(record))

    def _stop_all(self) -> None:
        self._tell("stopping")
        recorded_processes.stop(self._layout, commands=True)
        self._layout.forget_processes()


async def keep_logs_small(logs: Path, clock: Clock) -> None:
    """Trims all logs every minute until cancelled. Safe because every writer opens its log for appending."""
    while True:
        await asyncio.to_thread(trim_all, logs)
        await clock.sleep(_TRIM_SECONDS)


def trim_all(logs: Path) -> None:
    """Moves the older lines of a large NAME.log to NAME.log.1."""
    for path in logs.glob("*.log"):
        trim(path, MOST_LOG_BYTES)


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
