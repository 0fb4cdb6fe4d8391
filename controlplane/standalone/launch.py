"""`controlplane up`: runs the supervisor in the foreground, or detached in a new process.

A detached supervisor is a new process in a session of its own that inherits a single pipe from its parent. The child
reports the progress of the start through the pipe, a JSON object a line, and closes the pipe when all is ready.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from controlplane.aio.clock import SystemClock, chance
from controlplane.key_files import make_cluster_key
from controlplane.model.driver_traits import PROCESS
from controlplane.model.errors import ControlPlaneError
from controlplane.sealing import make_key_file
from controlplane.standalone import etcd_binary, first_access, folder_tls, recorded_processes
from controlplane.standalone import layout as files
from controlplane.standalone.folder_tls import FolderTls
from controlplane.standalone.layout import Layout
from controlplane.standalone.ports import Ports
from controlplane.standalone.process_plan import PYTHON, UpOptions, plan_processes
from controlplane.standalone.supervisor import Supervisor
from controlplane.standalone.welcome import welcome

Tell = Callable[[str], None]


def foreground(folder: Path, options: UpOptions) -> None:
    """Supervises in this process; returns after a signal."""

    def when_ready(text: str) -> None:
        print(text, flush=True)
        say("Ctrl-C stops it")

    supervise(Layout(folder), options, tell=say, when_ready=when_ready)


def behind(folder: Path, options: UpOptions, pipe: int) -> None:
    """The detached supervisor: reports through the pipe until ready, afterwards to its log."""
    report = StartReport(pipe)

    def when_ready(text: str) -> None:
        report.tell("ready", text)
        report.close()

    try:
        supervise(Layout(folder), options, tell=lambda text: report.tell("say", text), when_ready=when_ready)
    except ControlPlaneError as error:
        report.tell("error", f"{type(error).__name__}: {error}")
        report.close()
        raise


def detached(folder: Path, options: UpOptions) -> int:
    """Starts a detached supervisor; returns the exit code once the control plane is ready or has failed."""
    layout = Layout(folder)
    layout.make()
    read, write = os.pipe()
    argv = [*PYTHON, "controlplane.cli.controlplane", "up", "--data-dir", str(layout.folder)]
    argv += ["--replicas", str(options.replicas), "--targets", str(options.targets), "--behind", str(write)]
    argv += [*(["--insecure"] if options.insecure else []), *(["--tls"] if options.tls else [])]
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


def supervise(layout: Layout, options: UpOptions, *, tell: Tell, when_ready: Tell) -> None:
    """Supervises until a signal, with the folder's lock held; `when_ready` gets the welcome text."""
    layout.make()
    lock = layout.take_lock()
    try:
        binary = etcd_binary.find()
        tell(binary.sentence())
        layout.check_etcd(binary.version)
        if recorded_processes.stop(layout, commands=False):
            tell("stopped the processes that an earlier supervisor left running")
        layout.forget_processes()
        make_key_file(layout.secret_key, chance)
        make_cluster_key(layout.cluster_key, chance)
        tls = folder_tls.prepare(layout, SystemClock(), wanted=options.tls)
        _make_credentials(layout, options, tell)
        tell(_about_tls(tls, asked=options.tls))
        if os.geteuid() == 0 and options.targets:
            tell("warning: the commands of tasks run as root; a joblet with --run-as USER runs them as another user")
        with Ports() as ports:
            parts = plan_processes(layout, binary, ports, options, tls)
            exports = tls.etcdctl_exports() if tls is not None else ""
            files.write_text(
                layout.etcd_env, f"export ETCDCTL_API=3\nexport ETCDCTL_ENDPOINTS={parts.etcd_url}\n{exports}"
            )

            async def run() -> None:
                supervisor = Supervisor(layout, parts, clock=SystemClock(), tell=tell)
                await supervisor.run(lambda: when_ready(welcome(layout, parts)))

            asyncio.run(run())
    finally:
        os.close(lock)


def _make_credentials(layout: Layout, options: UpOptions, tell: Tell) -> None:
    if options.insecure:
        tell(
            "warning: --insecure: nobody is asked for credentials, so every user of this machine can run commands "
            f"as {getpass.getuser()}"
        )
        return
    first_access.make_token_file(layout.token)
    first_access.make_joblet_tokens(layout, options.target_names, PROCESS)


def _about_tls(tls: FolderTls | None, *, asked: bool) -> str:
    if tls is None:
        return "warning: without --tls every local user can reach this etcd, and so read and change everything"
    return f"connections are encrypted by {tls.folder}{'' if asked else ': the folder was begun with --tls'}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class StartReport:
    """The pipe to the process that started a detached supervisor. Every text goes to the log too."""

    def __init__(self, pipe: int) -> None:
        self._pipe: int | None = pipe

    def tell(self, event: str, text: str) -> None:
        say(text)
        if self._pipe is not None:
            try:
                os.write(self._pipe, json.dumps({event: text}).encode() + b"\n")
            except BrokenPipeError:
                self.close()

    def close(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


def _relay(read: int) -> int:
    with os.fdopen(read) as report:
        for line in report:
            event: dict[str, str] = json.loads(line)
            if "ready" in event:
                print(event["ready"], flush=True)
                return 0
            if "error" in event:
                say(f"error: {event['error']}")
                return 1
            say(event["say"])
    say("error: Unavailable: the supervisor ended before all was ready; its log is logs/up.log in the data folder")
    return 1
