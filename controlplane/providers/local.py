"""The provider `local`: targets are joblets on the replica's host, each a separate process that outlives the replica.

A target's folder holds the joblet's own files and `provider.json`: the last request and the process. A joblet that was
started but not recorded is found by its command line, so that no second joblet is ever started beside the first. A
request older than the recorded request, or for a removed target, comes from a deposed leader, and is refused. All
replicas of the host share the folder; a lock admits a single replica at a time to a target.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from controlplane.aio import processes
from controlplane.aio.files import lock_file, write_by_rename
from controlplane.aio.processes import Process
from controlplane.model.bounds import is_name
from controlplane.model.driver_traits import traits_of
from controlplane.model.errors import Refused, StaleAttempt, Unavailable
from controlplane.model.scalepolicy import Made

_JOBLET = (sys.executable, "-P", "-m", "controlplane.cli.controlplane", "joblet")
_FILE = "provider.json"
TOKEN_FILE = "token"
# How long a started joblet may take to show its command line.
_SHOWN_SECONDS = 1.0
# Commands on the host of the replicas must not take the processor from them.
NICE = "10"


class ProviderRecord(msgspec.Struct, frozen=True):
    """The content of `provider.json`."""

    id: str = ""
    request: str = ""
    generation: int = 0
    process: Process | None = None
    removed: bool = False


class LocalProvider:
    """`endpoints` are the replicas to which the joblets connect, `environment` is the environment of the joblets.

    `credential` gives the token of the joblet for a target and a driver, '' where replicas ask for none. `ca_file`
    holds the CA certificates of replicas that serve TLS.
    """

    def __init__(
        self,
        folder: Path,
        endpoints: Sequence[str],
        environment: Mapping[str, str],
        credential: Callable[[str, str], str] = lambda target, driver: "",
        *,
        ca_file: str = "",
    ) -> None:
        self._folder = folder
        self._ca_file = ca_file
        self._credential = credential
        self._endpoints = ",".join(endpoints)
        self._environment = dict(environment)
        # Children of this process, to be reaped when they end.
        self._children: list[int] = []

    async def create(self, made: Made) -> None:
        await self._act(self._ensure, made)

    async def resize(self, made: Made) -> None:
        """Restarts a joblet whose command line changes. Commands of tasks go on, and the next joblet adopts them."""
        await self._act(self._ensure, made)

    async def remove(self, made: Made) -> None:
        await self._act(self._remove, made)

    async def _act(self, action: Callable[[Made], None], made: Made) -> None:
        """Refused for a name that leads out of the folder; Unavailable when an operation of the host fails."""
        if not is_name(made.target):
            raise Refused(f"{made.target!r} is no name of a target")
        try:
            await asyncio.to_thread(action, made)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise Unavailable(f"this host cannot do it: {error.strerror or error}{where}") from None
        except ValueError as error:
            # Such as a null byte among the arguments.
            raise Refused(f"its joblet cannot be started: {error}") from None

    def _ensure(self, made: Made) -> None:
        folder = self._folder / made.target
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._reap()
        with _held(folder):
            record = read(folder)
            if _is_later(record, made):
                raise StaleAttempt(f"{made.target} was changed by a later request than {made.request}")
            process = running(folder, record)
            token = self._credential(made.target, made.template.driver)
            if token:
                write_by_rename(folder / TOKEN_FILE, token.encode())
            command = command_of(made, folder, self._endpoints, token_file=bool(token), ca_file=self._ca_file)
            # A joblet that another replica just started may show no command line yet; the next request looks again.
            if process is not None and tuple(processes.arguments_of(process.pid)) not in ((), command):
                processes.stop([process])
                process = None
            process = process or self._start(command, folder)
            _write(folder, ProviderRecord(made.id, made.request, made.generation, process))

    def _remove(self, made: Made) -> None:
        folder = self._folder / made.target
        if not folder.is_dir():
            return
        with _held(folder):
            record = read(folder)
            if record.id > made.id:
                return
            # The record comes first, so that no late request starts the joblet again.
            _write(folder, msgspec.structs.replace(record, id=made.id, request=made.request, removed=True))
            process = running(folder, record)
            if process is not None:
                processes.stop([process])
        self._reap()

    def _start(self, command: tuple[str, ...], folder: Path) -> Process | None:
        log = str(folder / "joblet.log")
        child = os.posix_spawn(
            sys.executable,
            command,
            self._environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        self._children.append(child)
        processes.wait_shown(child, _SHOWN_SECONDS)
        return processes.of(child)

    def _reap(self) -> None:
        self._children = [child for child in self._children if not _is_over(child)]


def _is_over(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True


def _is_later(record: ProviderRecord, made: Made) -> bool:
    """Whether the recorded request is later than `made`; identities sort by the time of their creation."""
    if record.id != made.id:
        return record.id > made.id
    return record.removed or record.generation > made.generation


def command_of(
    made: Made, folder: Path, endpoints: str, *, token_file: bool = False, ca_file: str = ""
) -> tuple[str, ...]:
    template = made.template
    options = {
        "target": made.target,
        "endpoints": endpoints,
        "driver": template.driver,
        "capacity": _listed(made.capacity),
        "labels": _listed(template.labels),
        "region": template.region,
        "data-dir": str(folder),
        "token-file": str(folder / TOKEN_FILE) if token_file else "",
        "tls-ca": ca_file,
        "nice": NICE if traits_of(template.driver).runs_commands else "",
    }
    given = (part for name, value in options.items() if value for part in (f"--{name}", value))
    return (*_JOBLET, "--resizable", *given)


def _listed(values: Mapping[str, object]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(values.items()))


def made_here(folder: Path) -> dict[str, Process]:
    """The running joblets of the provider in the folder, by target."""
    joblets = {}
    for file in sorted(folder.glob(f"*/{_FILE}")):
        process = running(file.parent, read(file.parent))
        if process is not None:
            joblets[file.parent.name] = process
    return joblets


def running(folder: Path, record: ProviderRecord) -> Process | None:
    if record.process is not None and record.process.is_alive():
        return record.process
    return next(_by_command(folder), None)


def _by_command(folder: Path) -> Iterator[Process]:
    for pid in processes.pids():
        arguments = processes.arguments_of(pid)
        if "joblet" in arguments and "--data-dir" in arguments:
            data_dir = arguments[arguments.index("--data-dir") + 1 :][:1]
            process = processes.of(pid) if data_dir == [str(folder)] and processes.is_own(pid) else None
            if process is not None:
                yield process


def read(folder: Path) -> ProviderRecord:
    """The record of the target; an empty record when the file is absent or unreadable."""
    try:
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=ProviderRecord)
    except (OSError, msgspec.DecodeError):
        return ProviderRecord()


def _write(folder: Path, record: ProviderRecord) -> None:
    write_by_rename(folder / _FILE, msgspec.json.encode(record))


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Unavailable while another replica works on the target."""
    lock = lock_file(folder / "provider.lock")
    if lock is None:
        raise Unavailable(f"another replica works on {folder.name}")
    try:
        yield
    finally:
        os.close(lock)
