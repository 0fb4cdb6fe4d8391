"""`controlplane up` from its first line to its last: in the foreground, or in a fresh process that stays behind.

A detached supervisor is a new process in a session of its own with nothing of its parent's open but one pipe, on which
it tells how the start goes, a JSON object a line, and which it closes when all is ready.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controlplane.aio.clock import SystemClock, chance
from controlplane.cli import etcd_binary
from controlplane.cli.up import leftovers
from controlplane.cli.up.layout import Layout
from controlplane.cli.up.parts import PYTHON, plan
from controlplane.cli.up.ports import Ports
from controlplane.cli.up.supervisor import Supervisor
from controlplane.cli.up.welcome import welcome
from controlplane.model.errors import ControlPlaneError
from controlplane.sealing import make_key_file

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Size:
    replicas: int
    targets: int


def foreground(folder: Path, size: Size) -> None:
    """Returns after a signal stopped it."""

    def when_ready(text: str) -> None:
        print(text, flush=True)
        say("Ctrl-C stops it")

    supervise(Layout(folder), size, tell=say, when_ready=when_ready)


def behind(folder: Path, size: Size, pipe: int) -> None:
    """The detached supervisor: tells through the pipe until it is ready, to its log after that."""
    report = Report(pipe)

    def when_ready(text: str) -> None:
        report.tell("ready", text)
        report.close()

    try:
        supervise(Layout(folder), size, tell=lambda text: report.tell("say", text), when_ready=when_ready)
    except ControlPlaneError as error:
        report.tell("error", f"{type(error).__name__}: {error}")
        report.close()
        raise


def detached(folder: Path, size: Size) -> int:
    """Starts a supervisor that stays behind; the exit code, once it is ready or has failed."""
    layout = Layout(folder)
    layout.make()
    read, write = os.pipe()
    argv = [*PYTHON, "controlplane.cli.controlplane", "up", "--data-dir", str(layout.folder)]
    argv += ["--replicas", str(size.replicas), "--targets", str(size.targets), "--behind", str(write)]
    with layout.log("up").open("ab") as log:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=(write,), cwd="/"
        )
    os.close(write)
    try:
        return _relay(read)
    except KeyboardInterrupt:
        child.send_signal(signal.SIGTERM)
        child.wait()
        raise


def supervise(layout: Layout, size: Size, *, tell: Tell, when_ready: Tell) -> None:
    layout.make()
    lock = layout.take_lock()
    try:
        binary = etcd_binary.find()
        tell(binary.sentence())
        layout.check_etcd(binary.version)
        if leftovers.stop(layout, commands=False):
            tell("stopped what an earlier supervisor left running")
        layout.forget_processes()
        make_key_file(layout.secret_key, chance)
        with Ports() as ports:
            parts = plan(layout, binary, ports, replicas=size.replicas, targets=size.targets)

            async def run() -> None:
                supervisor = Supervisor(layout, parts, clock=SystemClock(), tell=tell)
                await supervisor.run(lambda: when_ready(welcome(layout, parts)))

            asyncio.run(run())
    finally:
        os.close(lock)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Report:
    """The pipe to whoever started a detached supervisor. What cannot go there any more goes to the log."""

    def __init__(self, pipe: int) -> None:
        self._pipe: int | None = pipe

    def tell(self, what: str, text: str) -> None:
        say(text)
        if self._pipe is not None:
            try:
                os.write(self._pipe, json.dumps({what: text}).encode() + b"\n")
            except BrokenPipeError:
                self.close()

    def close(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


def _relay(read: int) -> int:
    with os.fdopen(read) as report:
        for line in report:
            told: dict[str, str] = json.loads(line)
            if "ready" in told:
                print(told["ready"], flush=True)
                return 0
            if "error" in told:
                say(f"error: {told['error']}")
                return 1
            say(told["say"])
    say("error: Unavailable: the supervisor ended before all was ready; its log is logs/up.log in the data folder")
    return 1
