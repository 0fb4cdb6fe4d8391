"""What becomes of an attempt whose shim died without a word: the rest of its command is killed, then it is called lost.

Whatever fails on the way (a full disk, no descriptors) is tried again: an attempt leaves here dead and told, or never.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog

from controlplane.aio.clock import Clock
from controlplane.joblet.drivers import leftovers
from controlplane.joblet.drivers.attempt import TROUBLE_SECONDS, Attempt
from controlplane.joblet.drivers.rundir import End
from controlplane.joblet.reconcile import observed_task
from controlplane.joblet.records import Records
from controlplane.model import times

LOOK_AGAIN_SECONDS = 0.02
T = TypeVar("T")
log = structlog.get_logger()


class Burials:
    def __init__(self, records: Records, boot: str, *, clock: Clock, told: Callable[[Attempt], None]) -> None:
        self._records = records
        self._boot = boot
        self._clock = clock
        self._told = told
        self._tasks: set[asyncio.Task[None]] = set()

    def bury(self, attempt: Attempt) -> None:
        """Until `told` is called it counts as running."""
        if attempt.observed.phase == "Starting":
            attempt.observed = observed_task(attempt.ref, "Running")
        attempt.buried = True
        task = asyncio.get_running_loop().create_task(self._kill_leftovers(attempt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _kill_leftovers(self, attempt: Attempt) -> None:
        evidence = await self._insist(attempt.run.shim)
        here = evidence is None or evidence.boot == self._boot
        if here:
            mark = f"CONTROLPLANE_PROGRESS={attempt.run.progress}"
            while await self._insist(partial(leftovers.kill_marked, mark)):
                await self._clock.sleep(LOOK_AGAIN_SECONDS)
            self._records.append_later("ended", attempt.subject, pid=evidence.pid if evidence is not None else 0)
        dead = "its shim was killed" if evidence is not None else "what its shim wrote was taken away"
        message = dead if here else "the machine restarted"
        started = evidence.started if evidence is not None else ""
        end = End(how="lost", started=started, finished=times.show(self._clock.wall()), message=message)
        try:
            attempt.run.write_end(end)
        except OSError as error:
            # Whoever looks into the folder next finds the same.
            log.warning("an end is told that cannot be written", run=attempt.run.path.name, error=str(error))
        attempt.observed = await self._insist(partial(attempt.run.observe_end, attempt.ref, end))
        attempt.buried = False
        self._told(attempt)

    async def _insist(self, look: Callable[[], T]) -> T:
        while True:
            try:
                return look()
            except OSError as error:
                log.warning("a burial waits", error=str(error))
                await self._clock.sleep(TROUBLE_SECONDS)
