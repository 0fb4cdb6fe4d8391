"""The provider `local`: targets are joblets on this host, each a process of its own that outlives the replica.

A target's folder holds the joblet's own files and `provider.json`: what was last asked for, and the process. A process
that was started but not written down is found by its command line, so that none is ever started beside it. A request
that is older than what is on record, or for a target that was removed, comes from a leader that was deposed, and is
refused. All replicas of the host share the folder; one of them at a time works on a target.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from controlplane.aio import processes
from controlplane.aio.processes import Process
from controlplane.model.bounds import is_name
from controlplane.model.errors import Refused, StaleAttempt, Unavailable
from controlplane.model.scalepolicy import Made

_JOBLET = (sys.executable, "-P", "-m", "controlplane.cli.controlplane", "joblet")
_FILE = "provider.json"
# Commands on the host of the replicas must not take the processor from them.
# How long a joblet that was started may take to show its command line.
_SHOWN_SECONDS = 1.0
NICE = "10"


class Record(msgspec.Struct, frozen=True):
    """The content of `provider.json`."""

    id: str = ""
    request: str = ""
    generation: int = 0
    process: Process | None = None
    removed: bool = False


class LocalProvider:
    """`endpoints` and `environment` are what its joblets connect to and run in."""

    def __init__(self, folder: Path, endpoints: Sequence[str], environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._endpoints = ",".join(endpoints)
        self._environment = dict(environment)
        # Children of this process, to be reaped when they end.
        self._children: list[int] = []

    async def create(self, made: Made) -> None:
        await self._act(self._ensure, made)

    async def resize(self, made: Made) -> None:
        """A joblet leaves its commands running when it stops, and the next one in its folder adopts them."""
        await self._act(self._ensure, made)

    async def remove(self, made: Made) -> None:
        await self._act(self._remove, made)

    async def _act(self, action: Callable[[Made], None], made: Made) -> None:
        """Refused for a name that leads out of the folder; Unavailable for whatever this host has against it."""
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
        home = self._folder / made.target
        home.mkdir(parents=True, exist_ok=True)
        self._reap()
        with _held(home):
            record = read(home)
            if _is_later(record, made):
                raise StaleAttempt(f"{made.target} was changed by a later request than {made.request}")
            process = running(home, record)
            command = command_of(made, home, self._endpoints)
            # One that another replica started a moment ago may show no command line yet; the next request looks again.
            if process is not None and tuple(processes.arguments_of(process.pid)) not in ((), command):
                processes.stop([process])
                process = None
            process = process or self._start(command, home)
            _write(home, Record(made.id, made.request, made.generation, process))

    def _remove(self, made: Made) -> None:
        home = self._folder / made.target
        if not home.is_dir():
            return
        with _held(home):
            record = read(home)
            if record.id > made.id:
                return
            # First, so that no late request starts it again.
            _write(home, msgspec.structs.replace(record, id=made.id, request=made.request, removed=True))
            process = running(home, record)
            if process is not None:
                processes.stop([process])
        self._reap()

    def _start(self, command: tuple[str, ...], home: Path) -> Process | None:
        log = str(home / "joblet.log")
        child = os.posix_spawn(
            sys.executable,
            command,
            self._environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
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


def _is_later(record: Record, made: Made) -> bool:
    """Whether what is on record was asked for after this; identities sort by the time of their making."""
    if record.id != made.id:
        return record.id > made.id
    return record.removed or record.generation > made.generation


def command_of(made: Made, home: Path, endpoints: str) -> tuple[str, ...]:
    template = made.template
    options = {
        "target": made.target,
        "endpoints": endpoints,
        "driver": template.driver,
        "capacity": _listed(made.capacity),
        "labels": _listed(template.labels),
        "region": template.region,
        "data-dir": str(home),
        "nice": NICE if template.driver == "process" else "",
    }
    given = (part for name, value in options.items() if value for part in (f"--{name}", value))
    return (*_JOBLET, "--resizable", *given)


def _listed(values: Mapping[str, object]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(values.items()))


def made_here(folder: Path) -> dict[str, Process]:
    """Every joblet that runs in this folder because it was asked for here, by its target."""
    found = {}
    for file in sorted(folder.glob(f"*/{_FILE}")):
        process = running(file.parent, read(file.parent))
        if process is not None:
            found[file.parent.name] = process
    return found


def running(home: Path, record: Record) -> Process | None:
    if record.process is not None and record.process.is_alive():
        return record.process
    return next(_by_command(home), None)


def _by_command(home: Path) -> Iterator[Process]:
    for pid in processes.pids():
        arguments = processes.arguments_of(pid)
        if "joblet" in arguments and "--data-dir" in arguments:
            folder = arguments[arguments.index("--data-dir") + 1 :][:1]
            process = processes.of(pid) if folder == [str(home)] and processes.is_own(pid) else None
            if process is not None:
                yield process


def read(home: Path) -> Record:
    """What is on record; nothing when there is no record, or none that can be read."""
    try:
        return msgspec.json.decode((home / _FILE).read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return Record()


def _write(home: Path, record: Record) -> None:
    """Readers see the old content or the new one, never a part."""
    new = home / f".{_FILE}.new"
    new.write_bytes(msgspec.json.encode(record))
    new.replace(home / _FILE)


@contextmanager
def _held(home: Path) -> Iterator[None]:
    """Unavailable while another replica works on the target."""
    lock = os.open(home / "provider.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Unavailable(f"another replica works on {home.name}") from None
    finally:
        os.close(lock)
