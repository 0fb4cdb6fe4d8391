"""One process of the system under test: started from the command line that a person would type, ended by its pid.

What it says goes to a file beside its data. A part that was killed is started again with the same command.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from controlplane.aio.processes import arguments_of, pids
from tests.credentials import TOKEN
from tests.robustness.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]


class Part:
    """`root` is where its code is."""

    def __init__(
        self, name: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], root: Path = ROOT
    ) -> None:
        self.name = name
        self.folder = folder
        self._root = root
        self._command = [sys.executable, "-m", "controlplane.cli.controlplane", *arguments]
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        try:
            return (self.folder / f"{self.name}.log").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def start(self) -> None:
        assert not self.running
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / f"{self.name}.log", "ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._root, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def change_flags(self, changed: Mapping[str, Sequence[str]]) -> None:
        """Puts other words in the place of a word of the command, from the next start on."""
        assert set(changed) <= set(self._command)
        self._command = [part for word in self._command for part in changed.get(word, [word])]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, also when it is stopped; returns when the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_SECONDS)

    async def ended(self) -> int:
        """The exit code, once the process has ended by itself."""
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait, PATIENCE_SECONDS)


class Replica(Part):
    """`grpc` and `http` are host:port and stay the same when it is started again."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        etcd: str,
        ports: tuple[int, int],
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        root: Path = ROOT,
    ) -> None:
        self.grpc = f"127.0.0.1:{ports[0]}"
        self.http = f"127.0.0.1:{ports[1]}"
        arguments = ["replica", "--etcd", etcd, "--id", name, "--grpc", self.grpc, "--http", self.http, *flags]
        super().__init__(name, arguments, folder, environment or {}, root)


class Joblet(Part):
    """`data` is its folder, with the records of what it really started."""

    def __init__(
        self,
        target: str,
        folder: Path,
        *,
        endpoints: Sequence[str],
        flags: Sequence[str],
        environment: Mapping[str, str] | None = None,
        root: Path = ROOT,
    ) -> None:
        self.target = target
        self.data = folder / target
        arguments = ["joblet", "--target", target, "--endpoints", ",".join(endpoints), "--data-dir", str(self.data)]
        token = {"CONTROLPLANE_TOKEN": TOKEN}
        super().__init__(f"joblet-{target}", [*arguments, *flags], folder, {**token, **(environment or {})}, root)

    def records(self) -> bytes:
        try:
            return (self.data / "records.jsonl").read_bytes()
        except FileNotFoundError:
            return b""

    def kill_commands(self) -> None:
        """What a joblet leaves running is meant to outlive it, but not the test."""
        for pid in pids():
            if arguments_of(pid)[-1:] == [str(self.data)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
