"""Begins attempts of the process driver: prepares the folder, has a shim made, and waits where there is no room.

A start that fails for want of disk, descriptors or processes has begun nothing: its folder goes, and it is tried again
for a while. Then the attempt ends as Evicted, which the default policies try again, elsewhere where they can.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from typing import Protocol

import structlog

from controlplane.aio.clock import Clock
from controlplane.joblet import task_files
from controlplane.joblet.drivers.attempt import TROUBLE_SECONDS, Attempt
from controlplane.joblet.drivers.rundir import EXHAUSTED, End, RunDir, Spec, exhausted_message
from controlplane.joblet.drivers.spawner import Spawner
from controlplane.joblet.environment import environment_of, expand
from controlplane.joblet.home import Folder
from controlplane.joblet.reconcile import observed_task
from controlplane.joblet.records import inside
from controlplane.model import times
from controlplane.model.fulfilment import Fulfilment, TaskRef

log = structlog.get_logger()


class StartListener(Protocol):
    """Who goes on with an attempt once it was begun, or was not."""

    def begun_before(self, attempt: Attempt) -> None:
        """Its folder was there already."""

    def ended_at_once(self, attempt: Attempt) -> None:
        """Its end is in its folder; nothing was started."""

    def shim_born(self, attempt: Attempt, pidfd: int | None) -> None:
        """None: nobody knows whether there ever was a shim."""

    def shim_spoke(self, attempt: Attempt) -> None:
        """The command runs."""

    def make_room(self) -> None:
        """An attempt cannot be begun for want of room."""

    def tell(self, attempt: Attempt) -> None:
        """What is observed of it changed."""


class Starter:
    """`options` are what each shim is told beside what concerns its attempt."""

    def __init__(
        self,
        home: Folder,
        spawner: Spawner,
        environment: Mapping[str, str],
        options: Mapping[str, int],
        listener: StartListener,
        *,
        clock: Clock,
    ) -> None:
        self._home = home
        self._spawner = spawner
        self._environment = dict(environment)
        self._options = dict(options)
        self._listener = listener
        self._clock = clock

    def begin(self, attempt: Attempt, wanted: Fulfilment) -> None:
        attempt.timer, attempt.waits_for_room = None, False
        job = wanted.jobs.get(attempt.ref.job)
        environment = _environment_of(wanted, attempt.ref, attempt.run)
        spec = Spec(
            subject=attempt.subject,
            command=tuple(expand(job.command, environment)) if job is not None else (),
            time_limit=job.time_limit if job is not None else None,
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

    def _not_begun(self, attempt: Attempt, wanted: Fulfilment, error: OSError) -> None:
        """Nothing of it was spawned, and its folder is gone."""
        if attempt.stopping is not None:
            attempt.observed = observed_task(attempt.ref, "Cancelled", reason=attempt.stopping.reason)
        elif not task_files.is_exhausted(error.errno):
            attempt.observed = observed_task(attempt.ref, "Failed", reason="StartError", message=str(error))
        elif self._clock.monotonic() >= attempt.give_up_at:
            message = exhausted_message(error.errno)
            attempt.observed = observed_task(attempt.ref, "Failed", reason=EXHAUSTED, message=message)
        else:
            if not attempt.told_to_wait:
                log.warning("an attempt waits for room to start", run=attempt.run.path.name, error=str(error))
            attempt.told_to_wait = True
            self._listener.make_room()
            loop = asyncio.get_running_loop()
            attempt.waits_for_room = True
            attempt.timer = loop.call_later(TROUBLE_SECONDS, self._begin_again, attempt, wanted)

    def _begin_again(self, attempt: Attempt, wanted: Fulfilment) -> None:
        self.begin(attempt, wanted)
        self._listener.tell(attempt)

    def _spawn(self, attempt: Attempt, spec: Spec, environment: dict[str, str], wanted: Fulfilment) -> None:
        """Raises OSError only when no shim was asked for."""
        if not spec.command:
            attempt.run.write_end(End(how="not_started", finished=times.show(self._clock.wall())))
            self._listener.ended_at_once(attempt)
            return
        told = {
            "command": list(spec.command),
            "environment": {**self._environment, **environment},
            "record": inside(attempt.subject),
            "time_limit": spec.time_limit,
            "holder": bool(attempt.subject.holds),
            "boot": self._home.boot,
            "until_boottime": self._home.until,
            **self._options,
        }
        attempt.awaited = True
        try:
            heard = self._spawner.spawn(
                attempt.run.path, told, partial(self._born, attempt), partial(self._refused, attempt, wanted)
            )
        except OSError:
            attempt.awaited = False
            raise
        asyncio.get_running_loop().add_reader(heard, self._spoke, attempt, heard)

    def _born(self, attempt: Attempt, pidfd: int | None) -> None:
        attempt.awaited = False
        attempt.born = attempt.born or pidfd is not None
        self._listener.shim_born(attempt, pidfd)

    def _refused(self, attempt: Attempt, wanted: Fulfilment, error: OSError) -> None:
        attempt.awaited = False
        attempt.run.discard()
        self._not_begun(attempt, wanted, error)
        asyncio.get_running_loop().call_soon(self._listener.tell, attempt)

    def _spoke(self, attempt: Attempt, heard: int) -> None:
        try:
            said = os.read(heard, 64)
        except BlockingIOError:
            return
        asyncio.get_running_loop().remove_reader(heard)
        os.close(heard)
        if said and attempt.alive:
            self._listener.shim_spoke(attempt)


def _environment_of(fulfilment: Fulfilment, task: TaskRef, run: RunDir) -> dict[str, str]:
    """A file that is mounted elsewhere is in the attempt's folder here, and variables that hold its path say so."""
    job = fulfilment.jobs.get(task.job)
    files = {path: str(run.file(number)) for number, path in enumerate(job.files if job is not None else ())}
    return {
        **{name: files.get(value, value) for name, value in environment_of(fulfilment, task).items()},
        "CONTROLPLANE_PROGRESS": str(run.progress),
        "CONTROLPLANE_ARTEFACTS": str(run.artefacts),
    }
