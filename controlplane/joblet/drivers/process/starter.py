"""Begins attempts of the process driver: prepares the folder, has a shim spawned, and waits where there is no room.

A start that fails for want of disk, descriptors or processes leaves nothing behind: its folder is removed, and the
start is repeated for a while. Then the attempt ends as Evicted, and the default policies try the task again, elsewhere
where they can.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from typing import Protocol

import msgspec
import structlog

from controlplane.aio.clock import Clock
from controlplane.joblet import task_files
from controlplane.joblet.attempt_records import json_fields
from controlplane.joblet.drivers.process.attempt import TROUBLE_SECONDS, ProcessAttempt
from controlplane.joblet.drivers.process.rundir import EXHAUSTED, End, RunAs, RunDir, Spec, exhausted_message
from controlplane.joblet.drivers.process.spawner import Spawner
from controlplane.joblet.environment import environment_of, expand
from controlplane.joblet.joblet_settings import OUTPUT_LIMIT
from controlplane.joblet.joblet_state import JobletFolder
from controlplane.joblet.reconcile import observed_task
from controlplane.model import times
from controlplane.model.fulfilment import Fulfilment, TaskRef
from controlplane.model.task import AttemptPhase

log = structlog.get_logger(__name__)


class StartListener(Protocol):
    """The driver, which goes on with an attempt once its start succeeded or failed."""

    def begun_before(self, attempt: ProcessAttempt) -> None:
        """The folder of the attempt exists already."""

    def ended_at_once(self, attempt: ProcessAttempt) -> None:
        """The end of the attempt is in its folder; no command was started."""

    def shim_born(self, attempt: ProcessAttempt, pidfd: int | None) -> None:
        """None: the fork server died before it confirmed whether it forked the shim."""

    def shim_spoke(self, attempt: ProcessAttempt) -> None:
        """The command runs."""

    def make_room(self) -> None:
        """An attempt cannot begin for want of room."""

    def changed(self, attempt: ProcessAttempt) -> None:
        """The observation of the attempt changed."""


class CommandLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a shim's spec that are the same for all attempts.

    output_limit: the bytes that are kept of each output, 0 for all.
    descriptors: how many a command may have open, 0 for as many as this process.
    processes: how many processes the user of the commands may have, 0 for as many as the machine allows.
    umask: of the commands; -1 for that of this process.
    """

    nice: int = 0
    output_limit: int = OUTPUT_LIMIT
    descriptors: int = 0
    processes: int = 0
    umask: int = -1


UNLIMITED = CommandLimits()


class Starter:
    def __init__(
        self,
        state: JobletFolder,
        spawner: Spawner,
        environment: Mapping[str, str],
        limits: CommandLimits,
        listener: StartListener,
        *,
        clock: Clock,
        groups: tuple[int, ...] = (),
    ) -> None:
        """`groups`: further groups of a command that runs as another user."""
        self._state = state
        self._groups = groups
        self._spawner = spawner
        self._environment = dict(environment)
        self._limits: dict[str, int] = msgspec.to_builtins(limits)
        self._listener = listener
        self._clock = clock

    def begin(self, attempt: ProcessAttempt, wanted: Fulfilment) -> None:
        attempt.timer, attempt.waits_for_room = None, False
        job = wanted.jobs.get(attempt.ref.job)
        environment = _environment_of(wanted, attempt.ref, attempt.run)
        spec = Spec(
            subject=attempt.subject,
            command=tuple(expand(job.command, environment)) if job is not None else (),
            time_limit=job.time_limit if job is not None else None,
            run_as=RunAs(str(home.entry), home.uid, home.gid) if (home := attempt.run.home) is not None else None,
        )
        try:
            attempt.run.prepare(spec)
        except FileExistsError:
            self._listener.begun_before(attempt)
            return
        except OSError as error:
            self._not_begun(attempt, wanted, error)
            return
        try:
            attempt.run.place_files(job.files.values() if job is not None else ())
            self._spawn(attempt, spec, environment, wanted)
        except OSError as error:
            attempt.run.discard()
            self._not_begun(attempt, wanted, error)

    def _not_begun(self, attempt: ProcessAttempt, wanted: Fulfilment, error: OSError) -> None:
        """No shim was spawned, and the folder of the attempt is removed."""
        if attempt.stopping is not None:
            attempt.observed = observed_task(attempt.ref, AttemptPhase.CANCELLED, reason=attempt.stopping.reason)
        elif not task_files.is_exhausted(error.errno):
            attempt.observed = observed_task(attempt.ref, AttemptPhase.FAILED, reason="StartError", message=str(error))
        elif self._clock.monotonic() >= attempt.give_up_at:
            message = exhausted_message(error.errno)
            attempt.observed = observed_task(attempt.ref, AttemptPhase.FAILED, reason=EXHAUSTED, message=message)
        else:
            if not attempt.logged_wait:
                log.warning("an attempt waits for room to start", run=attempt.run.path.name, error=str(error))
            attempt.logged_wait = True
            self._listener.make_room()
            loop = asyncio.get_running_loop()
            attempt.waits_for_room = True
            attempt.timer = loop.call_later(TROUBLE_SECONDS, self._begin_again, attempt, wanted)

    def _begin_again(self, attempt: ProcessAttempt, wanted: Fulfilment) -> None:
        self.begin(attempt, wanted)
        self._listener.changed(attempt)

    def _spawn(self, attempt: ProcessAttempt, spec: Spec, environment: dict[str, str], wanted: Fulfilment) -> None:
        """Raises OSError only when the fork server was not asked for a shim."""
        if not spec.command:
            attempt.run.write_end(End(how="not_started", finished=times.show(self._clock.wall())))
            self._listener.ended_at_once(attempt)
            return
        shim_spec = {
            "command": list(spec.command),
            "environment": {**self._environment, **environment},
            "record": json_fields(attempt.subject),
            "time_limit": spec.time_limit,
            "holder": bool(attempt.subject.holds),
            "boot": self._state.boot,
            "until_boottime": self._state.confirmed_until,
            "task_folder": str(attempt.run.task_folder),
            "run_as": self._identity(attempt.run),
            **self._limits,
        }
        attempt.awaited = True
        try:
            running = self._spawner.spawn(
                attempt.run.path, shim_spec, partial(self._born, attempt), partial(self._refused, attempt, wanted)
            )
        except OSError:
            attempt.awaited = False
            raise
        asyncio.get_running_loop().add_reader(running, self._spoke, attempt, running)

    def _identity(self, run: RunDir) -> tuple[int, int, tuple[int, ...]] | None:
        """User, group and further groups of the command; None for those of this process."""
        return None if run.home is None else (run.home.uid, run.home.gid, self._groups)

    def _born(self, attempt: ProcessAttempt, pidfd: int | None) -> None:
        attempt.awaited = False
        attempt.born = attempt.born or pidfd is not None
        self._listener.shim_born(attempt, pidfd)

    def _refused(self, attempt: ProcessAttempt, wanted: Fulfilment, error: OSError) -> None:
        attempt.awaited = False
        attempt.run.discard()
        self._not_begun(attempt, wanted, error)
        asyncio.get_running_loop().call_soon(self._listener.changed, attempt)

    def _spoke(self, attempt: ProcessAttempt, running: int) -> None:
        try:
            line = os.read(running, 64)
        except BlockingIOError:
            return
        asyncio.get_running_loop().remove_reader(running)
        os.close(running)
        if line and attempt.alive:
            self._listener.shim_spoke(attempt)


def _environment_of(fulfilment: Fulfilment, task: TaskRef, run: RunDir) -> dict[str, str]:
    """Files that other drivers mount are in the attempt's folder here; variables that hold their paths are adapted."""
    job = fulfilment.jobs.get(task.job)
    files = {path: str(run.file(number)) for number, path in enumerate(job.files if job is not None else ())}
    return {
        **{name: files.get(value, value) for name, value in environment_of(fulfilment, task).items()},
        "CONTROLPLANE_PROGRESS": str(run.progress),
        "CONTROLPLANE_ARTEFACTS": str(run.artefacts),
        **({"TMPDIR": str(run.home.path / "tmp")} if run.home is not None else {}),
    }
