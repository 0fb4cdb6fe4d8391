"""Reaps attempts whose shim died without writing an end: kills the rest of the command, then calls the attempt lost.

Each step that fails (a full disk, no descriptors) is repeated until it works, so that no attempt is called lost while a
process of its command lives.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog

from controlplane.aio.background import BackgroundTasks
from controlplane.aio.clock import Clock
from controlplane.joblet.attempt_records import AttemptRecords
from controlplane.joblet.drivers.process import process_search
from controlplane.joblet.drivers.process.attempt import TROUBLE_SECONDS, ProcessAttempt
from controlplane.joblet.drivers.process.rundir import End
from controlplane.joblet.reconcile import observed_task
from controlplane.model import times
from controlplane.model.task import AttemptPhase

LOOK_AGAIN_SECONDS = 0.02
T = TypeVar("T")
log = structlog.get_logger(__name__)


class Reaper:
    def __init__(
        self, records: AttemptRecords, boot: str, *, clock: Clock, reaped: Callable[[ProcessAttempt], None]
    ) -> None:
        self._records = records
        self._boot = boot
        self._clock = clock
        self._reaped = reaped
        self._tasks = BackgroundTasks(lambda error: log.error("reaping an attempt failed", exc_info=error))

    def reap(self, attempt: ProcessAttempt) -> None:
        """The attempt counts as running until `reaped` is called."""
        if attempt.observed.phase == AttemptPhase.STARTING:
            attempt.observed = observed_task(attempt.ref, AttemptPhase.RUNNING)
        attempt.being_reaped = True
        self._tasks.spawn(self._kill_leftovers(attempt))

    def close(self) -> None:
        self._tasks.cancel()

    async def _kill_leftovers(self, attempt: ProcessAttempt) -> None:
        evidence = await self._insist(attempt.run.shim)
        this_boot = evidence is None or evidence.boot == self._boot
        if this_boot:
            while await self._insist(_killer_of(attempt)):
                await self._clock.sleep(LOOK_AGAIN_SECONDS)
            self._records.append_later("ended", attempt.subject, pid=evidence.pid if evidence is not None else 0)
        dead = "its shim was killed" if evidence is not None else "the files of its shim were removed"
        message = dead if this_boot else "the machine restarted"
        started = evidence.started if evidence is not None else ""
        end = End(how="lost", started=started, finished=times.show(self._clock.wall()), message=message)
        try:
            attempt.run.write_end(end)
        except OSError as error:
            # The next joblet that looks into the folder draws the same conclusion.
            log.warning("an end is reported that cannot be written", run=attempt.run.path.name, error=str(error))
        attempt.observed = await self._insist(partial(attempt.run.observe_end, attempt.ref, end))
        attempt.being_reaped = False
        self._reaped(attempt)

    async def _insist(self, look: Callable[[], T]) -> T:
        while True:
            try:
                return look()
            except OSError as error:
                log.warning("an attempt cannot be reaped yet", error=str(error))
                await self._clock.sleep(TROUBLE_SECONDS)


def _killer_of(attempt: ProcessAttempt) -> Callable[[], int]:
    """Kills the processes of the attempt's command; a command that runs as another user cannot leave its group."""
    home = attempt.run.home
    if home is not None:
        return partial(process_search.kill_group_members, home.gid)
    return partial(process_search.kill_marked, f"CONTROLPLANE_PROGRESS={attempt.run.progress}")
